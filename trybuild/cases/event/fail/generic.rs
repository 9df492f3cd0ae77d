//~ "a message with generics cannot be an event: each topic carries one type"
use bus::prelude::*;

#[derive(Serialize, Deserialize, Event)]
#[event(topic = "order-placed")]
struct OrderPlaced<const N: usize>;

fn main() {}
