//~ "it is longer than 63 characters"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "a123456789b123456789c123456789d123456789e123456789f123456789g123")]
struct RebuildCache;

fn main() {}
