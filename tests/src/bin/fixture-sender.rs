//! A program that sends numbered tasks to the plain processor and writes down what it was answered for each. Its
//! arguments are how many it sends, and how many of them at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bus::Bus;
use bus_tests::journal::{Entry, Journal};
use bus_tests::task::{Plain, Task};

#[tokio::main]
async fn main() -> bus::Result<()> {
    let argument = |n, default| std::env::args().nth(n).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (count, callers) = (argument(1, 1), argument(2, 1));
    let journal = Journal::of_this_process();
    let producer = bus::connect().await?;
    journal.write(&Entry::now("started"));
    let next = Arc::new(AtomicU64::new(0));
    let calls = (0..callers)
        .map(|_| tokio::spawn(send(producer.bus().clone(), journal.clone(), Arc::clone(&next), count)));
    futures_util::future::join_all(calls).await;
    producer.close().await;
    Ok(())
}

/// Sends one after the other.
async fn send(bus: Bus, journal: Journal, next: Arc<AtomicU64>, count: u64) {
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= count {
            return;
        }
        let answer = bus.send(Plain(Task::new(n))).await;
        let mut entry = Entry::now(if answer.is_ok() { "sent" } else { "not sent" });
        entry.m = Some(n);
        entry.say = answer.as_ref().err().map(|error| format!("{:?}: {error:?}", error.kind()));
        journal.write(&entry);
        if answer.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
