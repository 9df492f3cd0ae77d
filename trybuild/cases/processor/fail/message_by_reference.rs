//~ "`&RebuildCache` is not a command"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor]
async fn rebuild_cache(_message: &RebuildCache) {}

fn main() {}
