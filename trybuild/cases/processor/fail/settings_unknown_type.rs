//~ "cannot find type `Bukl`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(settings = Bukl)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
