//~ "`Bulk`: a singleton runs one message at a time: it has no `max_concurrent_calls`; write `settings = AsSingleton<Bulk>`, or leave it out of `Bulk`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

struct Bulk;

impl Settings for Bulk {
    const MAX_CONCURRENT_CALLS: Option<usize> = Some(2);
}

#[processor(singleton, settings = Bulk)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
