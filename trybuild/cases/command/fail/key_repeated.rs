//~ "Duplicate field `queue`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "a", queue = "b")]
struct RebuildCache;

fn main() {}
