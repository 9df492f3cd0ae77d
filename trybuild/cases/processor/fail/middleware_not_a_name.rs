//~ "`middleware` takes the name of a middleware, or a list of names: write `middleware = [audit, measure]`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

async fn audit(delivery: Delivery, next: Next) -> Verdict {
    next.run(delivery).await
}

#[processor(middleware = [audit, "measure"])]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
