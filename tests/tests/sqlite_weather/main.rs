//! SQLite in rough weather: whatever befalls the file of a store, there is a clear error (what, where, what next), nothing
//! is lost that was acknowledged and is still in the file, and the host recovers by itself or ends with a code other than
//! zero.
//!
//! What each test shows is a row of the table in the backend's documentation.

#![cfg(target_os = "linux")]

/// Tests that start processes.
mod heavy {
    mod clocks;
    mod damage;
    mod failing_disk;
    mod full_disk;
    mod permissions;
    mod power_loss;
    mod readers;
    mod removal;
    mod restart;
    mod strangers;
    mod versions;
}

use std::collections::BTreeSet;
use std::time::Duration;

use bus_tests::journal::Entry;
use bus_tests::site::{Process, Setup, Site};
use bus_tests::task::{Plain, Single, Task};

/// Claims on plain messages of a host that ends without a word are soon somebody else's.
pub(crate) const SHORT_CLAIMS: &str = "[processors.plain]\nlease = \"2s\"\n";

/// A host that does what its messages say, and reads these endpoints. Its locks have short leases: where their store is
/// lost, they cannot be released, and a host that ends waits for them.
pub(crate) fn actor<'s>(site: &'s Site, endpoints: &[&str]) -> Setup<'s> {
    let setup = site.process(env!("CARGO_BIN_EXE_fixture-actor"));
    let setup = setup.env("BUS_LOCKS", "default").env("BUS_LOCK_LEASE", "3s");
    endpoints.iter().fold(setup, |setup, endpoint| setup.arg(endpoint))
}

/// A process that sends so many numbered tasks to the plain processor, so many at a time.
pub(crate) fn sender(site: &Site, tasks: u64, at_a_time: u64) -> Setup<'_> {
    site.process(env!("CARGO_BIN_EXE_fixture-sender")).arg(&tasks.to_string()).arg(&at_a_time.to_string())
}

/// Sends tasks to the plain processor from here.
pub(crate) async fn send_plain(site: &Site, tasks: impl IntoIterator<Item = Task>) {
    let producer = site.producer().await;
    for sent in producer.bus().send_all(tasks.into_iter().map(Plain)).await {
        sent.expect("sent");
    }
    producer.close().await;
}

/// Sends tasks to the singleton from here.
pub(crate) async fn send_single(site: &Site, tasks: impl IntoIterator<Item = Task>) {
    let producer = site.producer().await;
    for sent in producer.bus().send_all(tasks.into_iter().map(Single)).await {
        sent.expect("sent");
    }
    producer.close().await;
}

/// The numbers of the tasks whose sending was answered so: `sent` or `not sent`.
pub(crate) fn answered(site: &Site, how: &str) -> BTreeSet<u64> {
    site.entries().iter().filter(|entry| entry.e == how).filter_map(|entry| entry.m).collect()
}

/// The numbers of the tasks that have been run to their end.
pub(crate) fn done(site: &Site, endpoint: &str) -> BTreeSet<u64> {
    let ended = |run: &&bus_tests::runs::Run| run.how.as_deref() == Some("end");
    site.runs(endpoint).iter().filter(ended).map(|run| run.m).collect()
}

/// Whether such an event has been told.
pub(crate) fn told(site: &Site, event: &str) -> bool {
    site.entries().iter().any(|entry| entry.e == event)
}

/// Waits until such an event is told.
pub(crate) async fn event(site: &Site, event: &str) -> Entry {
    site.entry(&format!("{event} is told"), |entry| entry.e == event).await
}

/// Fails unless the process ends with a code other than zero, within `patience`, and says all of this.
pub(crate) async fn ends_saying(process: &mut Process<'_>, patience: Duration, words: &[&str]) {
    let (status, _) = process.exit_within(patience).await;
    let said = process.said();
    assert!(status.code().is_some_and(|code| code != 0), "it exits with {status}: {said}");
    for words in words {
        assert!(said.contains(words), "{words:?} is missing from: {said}");
    }
}

/// Fails unless SQLite finds the file sound.
pub(crate) fn assert_sound(site: &Site) {
    let connection = rusqlite::Connection::open(site.file()).expect("the file can be opened");
    let found: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("it can be checked");
    assert_eq!(found, "ok");
}

/// The numbers of the tasks that lie in the store, available or claimed.
pub(crate) fn stored(site: &Site) -> BTreeSet<u64> {
    let sql = rusqlite::Connection::open(site.file()).unwrap();
    let mut statement = sql.prepare("SELECT body FROM bus_message").unwrap();
    let bodies = statement.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap();
    let number = |body: Vec<u8>| serde_json::from_slice::<Task>(&body).unwrap().n;
    bodies.map(|body| number(body.unwrap())).collect()
}
