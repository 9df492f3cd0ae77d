//~ "leave `extern` out"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor]
async extern "C" fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
