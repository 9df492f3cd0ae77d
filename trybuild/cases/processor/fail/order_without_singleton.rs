//~ "`order` is for singletons, which process one message after another"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(order = "strict")]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
