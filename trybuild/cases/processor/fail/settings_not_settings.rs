//~ "`String` is not a settings type"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(settings = String)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
