//~ "a processor returns `()` or `Result<(), E>`, not `std::result::Result<(), NoError>`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

struct NoError;

#[processor]
async fn rebuild_cache(_message: RebuildCache) -> Result<(), NoError> {
    Err(NoError)
}

fn main() {}
