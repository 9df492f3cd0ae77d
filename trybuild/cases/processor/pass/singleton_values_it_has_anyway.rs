use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[derive(Serialize, Deserialize, Event)]
#[event(topic = "order-placed")]
struct OrderPlaced;

#[derive(Settings)]
#[settings(max_concurrent_calls = 1, prefetch_count = 0)]
struct One;

#[processor(singleton, max_concurrent_calls = 1, prefetch_count = 0)]
async fn rebuild_cache(_message: RebuildCache, _term: Term) {}

#[processor(subscription = "a", singleton, settings = One, order = "relaxed")]
async fn send_receipt(_event: OrderPlaced) {}

fn main() {}
