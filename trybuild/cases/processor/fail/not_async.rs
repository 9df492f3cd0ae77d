//~ "a processor is an `async fn`: write `async fn rebuild_cache`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor]
fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
