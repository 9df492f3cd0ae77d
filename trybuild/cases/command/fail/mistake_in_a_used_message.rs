//~ ""RebuildCache" cannot name a queue"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "RebuildCache")]
struct RebuildCache;

#[processor]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
