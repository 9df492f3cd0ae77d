//~ "`OrderPlaced` has no topic: write `#[event(topic = "my-topic")]`"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Event)]
struct OrderPlaced;

fn main() {}
