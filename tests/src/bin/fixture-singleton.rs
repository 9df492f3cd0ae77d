//! The smallest program with a singleton, as a user writes it.

use bus::prelude::*;
use bus_tests::journal::{Entry, Journal};
use bus_tests::task::Single;

#[processor(singleton, settings = Default)]
async fn count_up(Single(task): Single, id: MessageId, term: Term) {
    let mut entry = Entry::now("end");
    (entry.m, entry.id, entry.fence) = (Some(task.n), Some(id.to_string()), Some(term.fence().get()));
    Journal::of_this_process().write(&entry);
}

#[tokio::main]
async fn main() -> bus::Result<()> {
    bus::run().await
}
