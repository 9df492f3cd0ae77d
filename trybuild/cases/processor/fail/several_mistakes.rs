//~ "`lease` takes a time in quotes"
//~ errors: 4
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(lease = 5, subscrption = "a")]
fn rebuild_cache() {}

fn main() {}
