//~ "`RebuildCache` is not an event"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(subscription = "send-receipt")]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
