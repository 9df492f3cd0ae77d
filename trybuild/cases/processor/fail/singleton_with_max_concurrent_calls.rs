//~ "a singleton runs one message at a time: it has no `max_concurrent_calls`; leave it out"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(singleton, max_concurrent_calls = 8)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
