//~ "Duplicate field `topic`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Event)]
#[event(topic = "order-placed")]
#[event(topic = "order-moved")]
struct OrderPlaced;

fn main() {}
