//! What is sent.

use bus::prelude::*;

/// Asks for an order to be placed.
#[derive(Clone, Debug, Serialize, Deserialize, Command)]
#[command(queue = "place-order")]
pub struct PlaceOrder {
    /// Names the order, and is the message's id, too.
    pub order: MessageId,
    /// What is wanted.
    pub item: String,
    /// How many of it.
    pub quantity: u32,
}

/// An order was placed.
#[derive(Clone, Debug, Serialize, Deserialize, Event)]
#[event(topic = "order-placed")]
pub struct OrderPlaced {
    /// Which one.
    pub order: MessageId,
    /// What was wanted.
    pub item: String,
    /// How many of it.
    pub quantity: u32,
}
