//~ "cannot find type `Catalg` in this scope"
//~ errors: 2
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor]
async fn rebuild_cache(_message: RebuildCache, _catalog: Dep<Catalg>) {}

fn main() {}
