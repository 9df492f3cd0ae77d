//~ "`settings` takes a type: write `settings = Bulk` or `settings = Default`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(settings = 5)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
