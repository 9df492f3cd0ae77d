//~ "`#[processor]` stands on a free function, and this is none"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor]
struct Handler;

fn main() {}
