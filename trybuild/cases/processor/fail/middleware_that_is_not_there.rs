//~ "cannot find value `audit` in this scope"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(middleware = audit)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
