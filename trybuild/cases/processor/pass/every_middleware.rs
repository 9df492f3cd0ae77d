use bus::contract::BoxFuture;
use bus::pipeline::Middleware;
use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

mod around {
    use super::*;

    pub(crate) async fn audit(delivery: Delivery, next: Next) -> Verdict {
        next.run(delivery).await
    }
}

struct Measure;

impl Middleware for Measure {
    fn handle(&self, delivery: Delivery, next: Next) -> BoxFuture<'static, Verdict> {
        next.run(delivery)
    }
}

const MEASURE: Measure = Measure;

#[derive(Serialize, Deserialize, Event)]
#[event(topic = "order-placed")]
struct OrderPlaced;

#[processor(singleton, middleware = around::audit)]
async fn rebuild_cache(_message: RebuildCache) {}

#[processor(subscription = "one", middleware = [around::audit, Measure, MEASURE])]
async fn one(_event: OrderPlaced) {}

#[processor(subscription = "two", middleware = [])]
async fn two(_event: OrderPlaced) {}

fn main() {}
