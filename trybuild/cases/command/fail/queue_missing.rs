//~ "`RebuildCache` has no queue: write `#[command(queue = "my-queue")]`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
struct RebuildCache;

fn main() {}
