//~ "`queue` takes a name in quotes: write `queue = "my-name"`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = 5)]
struct RebuildCache;

fn main() {}
