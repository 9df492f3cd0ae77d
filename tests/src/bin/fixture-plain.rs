//! The smallest program without a singleton, as a user writes it.

use bus::prelude::*;
use bus_tests::journal::{Entry, Journal};
use bus_tests::task::Plain;

#[processor]
async fn note(Plain(task): Plain, id: MessageId) {
    let mut entry = Entry::now("end");
    (entry.m, entry.id) = (Some(task.n), Some(id.to_string()));
    Journal::of_this_process().write(&entry);
}

#[tokio::main]
async fn main() -> bus::Result<()> {
    bus::run().await
}
