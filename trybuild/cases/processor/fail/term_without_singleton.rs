//~ "only a singleton has a `Term`, and this processor is none"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor]
async fn rebuild_cache(_message: RebuildCache, _term: Term) {}

fn main() {}
