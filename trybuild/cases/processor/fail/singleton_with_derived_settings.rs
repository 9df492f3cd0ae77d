//~ "`Bulk`: a singleton runs one message at a time: it has no `max_concurrent_calls`; write `settings = AsSingleton<Bulk>`, or leave it out of `Bulk`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[derive(Settings)]
#[settings(max_concurrent_calls = 100)]
struct Bulk;

#[processor(singleton, settings = Bulk)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
