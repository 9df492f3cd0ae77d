//~ """ cannot name a queue: it is empty"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "")]
struct RebuildCache;

fn main() {}
