//~ "`order` takes `"strict"` or `"relaxed"`: write `order = "strict"`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(singleton, order = "random")]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
