//~ "a processor cannot be generic: write the argument's type instead of `impl …`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor]
async fn rebuild_cache(_message: impl Command) {}

fn main() {}
