//~ "`OrderPlaced` is not a command"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Event)]
#[event(topic = "order-placed")]
struct OrderPlaced;

#[processor]
async fn send_receipt(_event: OrderPlaced) {}

fn main() {}
