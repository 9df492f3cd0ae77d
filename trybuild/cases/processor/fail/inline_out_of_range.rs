//~ "`dead_letter_delivery_limit` is 0"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(dead_letter_delivery_limit = 0)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
