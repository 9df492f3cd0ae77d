//~ ""sendReceipt" cannot name a subscription: it has a character other than a-z, 0-9 and dash"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Event)]
#[event(topic = "order-placed")]
struct OrderPlaced;

#[processor(subscription = "sendReceipt")]
async fn send_receipt(_event: OrderPlaced) {}

fn main() {}
