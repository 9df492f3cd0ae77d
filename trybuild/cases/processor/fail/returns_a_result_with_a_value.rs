//~ "a processor returns `()` or `Result<(), E>`, not `std::result::Result<u32, bus::Error>`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor]
async fn rebuild_cache(_message: RebuildCache) -> Result<u32> {
    Ok(1)
}

fn main() {}
