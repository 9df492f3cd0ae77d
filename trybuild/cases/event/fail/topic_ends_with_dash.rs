//~ ""order-placed-" cannot name a topic: it begins or ends with a dash"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Event)]
#[event(topic = "order-placed-")]
struct OrderPlaced;

fn main() {}
