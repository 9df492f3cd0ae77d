//! What is done with what was sent. Each may see a message again, and does it once: by the book, or by the id of what it
//! sends.

use std::io;

use bus::prelude::*;

use crate::book::{Book, Page};
use crate::messages::{OrderPlaced, PlaceOrder};

/// Places an order: tells all who have to do with it.
#[processor(max_concurrent_calls = 32)]
pub async fn place_order(order: PlaceOrder, id: MessageId, bus: Bus) -> Result<()> {
    if order.quantity == 0 {
        return Err(bus::Error::dead_letter("an order of nothing"));
    }
    let PlaceOrder { order, item, quantity } = order;
    // The same id each time: whoever reads it knows it again.
    bus.publish(OrderPlaced { order, item, quantity }).message_id(id.derive("placed")).await?;
    Ok(())
}

/// Writes a receipt.
#[processor(subscription = "receipt", max_concurrent_calls = 32)]
pub async fn receipt(event: OrderPlaced, book: Dep<Book>) -> io::Result<()> {
    book.enter(Page::Receipt, event.order)
}

/// Takes what was ordered out of the stock.
#[processor(subscription = "stock", max_concurrent_calls = 32)]
pub async fn stock(event: OrderPlaced, book: Dep<Book>) -> io::Result<()> {
    book.enter(Page::Stock, event.order)
}
