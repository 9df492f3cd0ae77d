//~ "`before_dead_letter` takes the name of a function: write `before_dead_letter = tell_support`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(before_dead_letter = "tell_support")]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
