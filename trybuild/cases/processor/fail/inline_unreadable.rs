//~ ""half a minute" is no duration"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(lease = "half a minute")]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
