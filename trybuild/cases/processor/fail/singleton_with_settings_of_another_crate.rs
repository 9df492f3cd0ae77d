//~ "`bus_trybuild::Bulk`: a singleton runs one message at a time: it has no `max_concurrent_calls`; write `settings = AsSingleton<bus_trybuild::Bulk>`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(singleton, settings = bus_trybuild::Bulk)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
