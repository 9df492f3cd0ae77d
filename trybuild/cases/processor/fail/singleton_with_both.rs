//~ "a singleton claims no message ahead: it has no `prefetch_count`"
//~ errors: 2
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[derive(Settings)]
#[settings(max_concurrent_calls = 100, prefetch_count = 50)]
struct Bulk;

#[processor(singleton, settings = Bulk)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
