//~ "a singleton claims no message ahead: it has no `prefetch_count`; leave it out"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(singleton, prefetch_count = 50)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
