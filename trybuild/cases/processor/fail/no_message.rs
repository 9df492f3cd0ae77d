//~ "a processor takes its message as the first argument: write `async fn rebuild_cache(message: MyCommand)`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor]
async fn rebuild_cache() {}

fn main() {}
