//~ "Unknown field: `queue`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Event)]
#[event(topic = "order-placed", queue = "orders")]
struct OrderPlaced;

fn main() {}
