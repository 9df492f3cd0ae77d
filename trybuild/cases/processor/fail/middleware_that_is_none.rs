//~ "function is expected to take 2 arguments, but it takes 1 argument"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

async fn audit(delivery: Delivery) -> Verdict {
    let _ = delivery;
    Verdict::Complete
}

#[processor(middleware = audit)]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
