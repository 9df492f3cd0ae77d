//! The messages of the example, and the records that they are made from.

use bus::prelude::*;

/// One line of `orders.csv`, as a command: whoever reads the queue `place-order` gets it once.
#[derive(Debug, Clone, Serialize, Deserialize, Command)]
#[command(queue = "place-order")]
pub struct PlaceOrder {
    /// The order's number.
    pub order: u64,
    /// Who ordered.
    pub customer: String,
    /// What was ordered.
    pub sku: String,
    /// How many of it; a shop cannot deliver 0 of something.
    pub quantity: u32,
    /// What one costs.
    pub price_cents: u64,
}

/// An order was accepted. Each subscription gets its own copy.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(topic = "order-placed")]
pub struct OrderPlaced {
    /// The order's number.
    pub order: u64,
    /// What was ordered.
    pub sku: String,
    /// How many of it.
    pub quantity: u32,
    /// What all of it costs.
    pub total_cents: u64,
}

/// All orders of a customer are to be added up. A singleton does it, one customer after the other.
#[derive(Debug, Serialize, Deserialize, Command)]
#[command(queue = "write-statement")]
pub struct WriteStatement {
    /// Whose orders.
    pub customer: String,
    /// What they cost, order by order.
    pub totals_cents: Vec<u64>,
}

/// Reads `orders.csv`.
pub fn read(text: &str) -> std::result::Result<Vec<PlaceOrder>, String> {
    text.lines()
        .skip(1)
        .enumerate()
        .map(|(i, line)| parse(line).ok_or(format!("line {}: {line:?}", i + 2)))
        .collect()
}

fn parse(line: &str) -> Option<PlaceOrder> {
    let mut fields = line.split(',');
    Some(PlaceOrder {
        order: fields.next()?.parse().ok()?,
        customer: fields.next()?.to_owned(),
        sku: fields.next()?.to_owned(),
        quantity: fields.next()?.parse().ok()?,
        price_cents: fields.next()?.parse().ok()?,
    })
}
