//~ "this is no middleware"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

async fn audit(delivery: Delivery, next: Next) -> Result<()> {
    next.run(delivery).await;
    Ok(())
}

#[processor(middleware = [audit])]
async fn rebuild_cache(_message: RebuildCache) {}

fn main() {}
