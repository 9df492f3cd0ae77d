//~ "a processor cannot be generic: nobody names its types when it is called; write them out"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor]
async fn rebuild_cache<M: Command>(_message: M) {}

fn main() {}
