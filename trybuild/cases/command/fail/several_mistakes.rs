//~ "Did you mean `transport`?"
//~ errors: 2
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = 5, transprt = "billing")]
struct RebuildCache;

fn main() {}
