//~ ""order--placed" cannot name a topic: it has two dashes in a row"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Event)]
#[event(topic = "order--placed")]
struct OrderPlaced;

fn main() {}
