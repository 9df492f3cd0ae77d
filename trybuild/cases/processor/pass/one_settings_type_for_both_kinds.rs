use bus::prelude::*;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache;

#[derive(Serialize, Deserialize, Event)]
#[event(topic = "order-placed")]
struct OrderPlaced;

#[derive(Settings)]
#[settings(max_concurrent_calls = 100)]
struct Bulk;

#[processor(singleton, settings = AsSingleton<Bulk>, lease = "5s")]
async fn rebuild_cache(_message: RebuildCache) {}

#[processor(subscription = "a", settings = Bulk)]
async fn send_receipt(_event: OrderPlaced) {}

#[processor(subscription = "b", singleton, settings = bus::settings::AsSingleton<Default>)]
async fn count(_event: OrderPlaced) {}

fn main() {}
