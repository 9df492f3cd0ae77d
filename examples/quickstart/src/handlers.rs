//! The annotated functions. Nothing else registers them: `bus` finds them when the program starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bus::prelude::*;

use crate::orders::{OrderPlaced, PlaceOrder, WriteStatement};

/// What has been done so far, shared by the handlers and `main`.
#[derive(Debug, Default)]
pub struct Tally {
    /// Orders accepted.
    pub placed: AtomicU64,
    /// Attempts at orders that cannot be accepted.
    pub refused: AtomicU64,
    /// Receipts sent.
    pub receipts: AtomicU64,
    /// Pieces taken from the stock.
    pub pieces: AtomicU64,
    /// Stock movements booked.
    pub movements: AtomicU64,
    /// Statements written.
    pub statements: AtomicU64,
    /// Statements being written at this moment: a singleton never lets it become 2.
    pub writing: AtomicU64,
    /// The most statements that were ever written at the same time.
    pub most_writing: AtomicU64,
    /// What all receipts add up to.
    pub receipts_cents: AtomicU64,
    /// What all statements add up to.
    pub statements_cents: AtomicU64,
}

/// Made once when the host starts; handlers ask for it with `Dep<Arc<Tally>>`.
#[provide]
async fn tally() -> Arc<Tally> {
    Arc::new(Tally::default())
}

/// Many at once. What fails is tried again, three attempts in all, and then kept among the dead letters.
#[processor(
    max_concurrent_calls = 16,
    prefetch_count = 200,
    dead_letter_delivery_limit = 3,
    retry(fixed = "100ms")
)]
async fn place_order(message: PlaceOrder, bus: Bus, tally: Dep<Arc<Tally>>) -> Result<(), String> {
    if message.quantity == 0 {
        tally.refused.fetch_add(1, Ordering::Relaxed);
        return Err(format!("order {} is for 0 pieces", message.order));
    }
    let total_cents = u64::from(message.quantity) * message.price_cents;
    let event =
        OrderPlaced { order: message.order, sku: message.sku, quantity: message.quantity, total_cents };
    bus.publish(event).await.map_err(|error| error.to_string())?;
    tally.placed.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

#[processor(subscription = "send-receipt", prefetch_count = 200)]
async fn send_receipt(event: OrderPlaced, tally: Dep<Arc<Tally>>) {
    tally.receipts_cents.fetch_add(event.total_cents, Ordering::Relaxed);
    tally.receipts.fetch_add(1, Ordering::Relaxed);
}

#[processor(subscription = "book-stock", prefetch_count = 200)]
async fn book_stock(event: OrderPlaced, tally: Dep<Arc<Tally>>) {
    tally.pieces.fetch_add(u64::from(event.quantity), Ordering::Relaxed);
    tally.movements.fetch_add(1, Ordering::Relaxed);
}

/// One at a time, on one process of however many run this program.
#[processor(singleton, settings = Default)]
async fn write_statement(message: WriteStatement, term: Term, tally: Dep<Arc<Tally>>) -> Result<()> {
    let writing = tally.writing.fetch_add(1, Ordering::SeqCst) + 1;
    tally.most_writing.fetch_max(writing, Ordering::SeqCst);
    let sum: u64 = message.totals_cents.iter().sum();
    tokio::task::yield_now().await;
    // Before anything that outlives the process: is this still ours to do?
    term.check()?;
    tally.statements_cents.fetch_add(sum, Ordering::Relaxed);
    tally.statements.fetch_add(1, Ordering::Relaxed);
    tally.writing.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}
