//~ "Duplicate field `singleton`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(singleton, singleton)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
