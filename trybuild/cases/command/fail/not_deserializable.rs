//~ "the trait bound `RebuildCache: serde::Deserialize<'de>` is not satisfied"
//~ errors: 2
use bus::prelude::*;

#[derive(Serialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

fn main() {}
