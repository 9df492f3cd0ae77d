//~ "Did you mean `singleton`?"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[processor(singelton)]
async fn rebuild_cache(_message: RebuildCache) {}

async fn call_it() {
    rebuild_cache(RebuildCache).await;
}

fn main() {}
