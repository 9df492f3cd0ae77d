//~ "`max_concurrent_calls` is 0"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[derive(Settings)]
#[settings(max_concurrent_calls = 0)]
struct Bulk;

#[processor(settings = Bulk)]
async fn rebuild_cache(_message: RebuildCache) {}

#[processor(singleton, settings = Bulk)]
async fn rebuild_alone(_message: RebuildCache) {}

fn main() {}
