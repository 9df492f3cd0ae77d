//~ "a `Term` can be had by a singleton's only"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

async fn tell_support(_letter: DeadLettering<RebuildCache>, _term: Term) {}

#[processor(before_dead_letter = tell_support)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
