use bus::prelude::*;

#[derive(Serialize, Deserialize, Event)]
#[event(topic = "order-placed", transport = "billing", crate = ::bus)]
struct OrderPlaced {
    order_id: u64,
}

fn main() {
    assert_eq!(<OrderPlaced as Event>::TOPIC, "order-placed");
    let _ = OrderPlaced { order_id: 1 }.order_id;
}
