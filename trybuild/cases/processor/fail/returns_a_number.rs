//~ "a processor returns `()` or `Result<(), E>`, not `u32`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor]
async fn rebuild_cache(_message: RebuildCache) -> u32 {
    1
}

fn main() {}
