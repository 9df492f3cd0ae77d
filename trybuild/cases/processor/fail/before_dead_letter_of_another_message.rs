//~ "this cannot be called before a `RebuildCache` is dead-lettered"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "drop-cache")]
struct DropCache;

async fn tell_support(_letter: DeadLettering<DropCache>) {}

#[processor(before_dead_letter = tell_support)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
