//! Reads three thousand orders from `orders.csv`, sends each as a command, and shows what becomes of them: an event with
//! two subscriptions, a singleton that writes statements, and dead letters for the orders that cannot be right.
//!
//! Everything is in one SQLite file in a temporary directory. Start it again and again: each run is a fresh one.

#![allow(clippy::print_stdout, reason = "it is what this program is for")]

mod handlers;
mod orders;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bus::Endpoint;
use bus::host::HostHandle;
use bus::host::config::Config;
use handlers::Tally;
use orders::{PlaceOrder, WriteStatement};

/// Long enough for the slowest machine; the work takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let directory = tempfile::tempdir()?;
    let store = format!("sqlite://{}/bus.db", directory.path().display());
    let orders = orders::read(include_str!("../orders.csv"))?;
    let statements = statements(&orders);
    let expected = Expected::of(&orders, statements.len());

    let tally = Arc::new(Tally::default());
    let host = bus::Host::builder()
        .config(Config::read(env!("CARGO_MANIFEST_DIR"), std::env::vars_os())?)
        .transport("default", &store)
        // Instead of the `#[provide]` function, so that `main` sees it too.
        .provide(Arc::clone(&tally))
        .build()?
        .start()
        .await?;

    for sent in host.bus().send_all(orders).await {
        sent?;
    }
    for sent in host.bus().send_all(statements).await {
        sent?;
    }
    println!("sent {} orders and {} requests for statements", expected.orders, expected.statements);

    let dead = wait(&host, &tally, &expected).await?;
    host.stop().await?;
    summary(&tally, &expected, &dead, started.elapsed())
}

/// What has to come out.
struct Expected {
    orders: u64,
    good: u64,
    pieces: u64,
    cents: u64,
    statements: u64,
}

impl Expected {
    fn of(orders: &[PlaceOrder], statements: usize) -> Self {
        let good: Vec<_> = orders.iter().filter(|order| order.quantity > 0).collect();
        Expected {
            orders: orders.len() as u64,
            good: good.len() as u64,
            pieces: good.iter().map(|order| u64::from(order.quantity)).sum(),
            cents: good.iter().map(|order| u64::from(order.quantity) * order.price_cents).sum(),
            statements: statements as u64,
        }
    }
}

/// One request a customer.
fn statements(orders: &[PlaceOrder]) -> Vec<WriteStatement> {
    let mut by_customer: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for order in orders.iter().filter(|order| order.quantity > 0) {
        by_customer.entry(&order.customer).or_default().push(u64::from(order.quantity) * order.price_cents);
    }
    by_customer
        .into_iter()
        .map(|(customer, totals_cents)| WriteStatement { customer: customer.to_owned(), totals_cents })
        .collect()
}

/// Shows how far it is, until everything is done or dead; answers the dead letters.
async fn wait(host: &HostHandle, tally: &Tally, expected: &Expected) -> Result<Vec<String>, Box<dyn Error>> {
    let deadline = Instant::now() + PATIENCE;
    let queue = Endpoint::queue("place-order")?;
    let inspect = host.inspect("default")?;
    let at = |count: &AtomicU64| count.load(Relaxed);
    loop {
        let dead = inspect.depth(&queue).await?.dead;
        println!(
            "  orders {}/{}, receipts {}, stock movements {}, statements {}/{}, dead letters {dead}",
            at(&tally.placed),
            expected.orders,
            at(&tally.receipts),
            at(&tally.movements),
            at(&tally.statements),
            expected.statements,
        );
        let done = at(&tally.placed) + dead == expected.orders
            && at(&tally.receipts) == expected.good
            && at(&tally.movements) == expected.good
            && at(&tally.statements) == expected.statements;
        if done {
            break;
        }
        if Instant::now() > deadline {
            return Err(format!("not done after {PATIENCE:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let dead = inspect.dead_letters(&queue, None, 100).await?;
    Ok(dead
        .iter()
        .map(|letter| format!("{} ({})", letter.error.as_deref().unwrap_or("?"), letter.reason))
        .collect())
}

/// Says what was done, and fails if it does not add up.
fn summary(
    tally: &Tally,
    expected: &Expected,
    dead: &[String],
    took: Duration,
) -> Result<(), Box<dyn Error>> {
    let at = |count: &AtomicU64| count.load(Relaxed);
    println!("\ndone in {:.1} s", took.as_secs_f64());
    println!(
        "  {} orders sent = {} placed + {} dead letters",
        expected.orders,
        at(&tally.placed),
        dead.len()
    );
    println!(
        "  {} receipts over {} cents, {} pieces out of the stock",
        at(&tally.receipts),
        at(&tally.receipts_cents),
        at(&tally.pieces)
    );
    println!(
        "  {} statements over {} cents by the singleton, at most {} at a time",
        at(&tally.statements),
        at(&tally.statements_cents),
        at(&tally.most_writing)
    );
    println!("  {} attempts at orders that cannot be right, which are now dead letters:", at(&tally.refused));
    for letter in dead {
        println!("    {letter}");
    }
    let adds_up = expected.orders == at(&tally.placed) + dead.len() as u64
        && at(&tally.receipts_cents) == expected.cents
        && at(&tally.statements_cents) == expected.cents
        && at(&tally.pieces) == expected.pieces
        && at(&tally.refused) == 3 * dead.len() as u64
        && at(&tally.most_writing) == 1;
    if adds_up { Ok(()) } else { Err("this does not add up".into()) }
}
