//! Hosts as processes: how they start, share work, hand singletons over, and end, however they end.

#![cfg(unix)]

mod crashes;
mod frozen;
mod heavy_memory;
mod heavy_poison;
mod liveness;
mod logging;
mod lost;
mod overrun;
mod plugins;
mod saturation;
mod shutdown;
mod start;
mod takeover;

use bus_tests::site::{Setup, Site};
use bus_tests::task::{Plain, Single, Task};

/// A host that does what its messages say, and reads these endpoints.
pub(crate) fn actor<'s>(site: &'s Site, endpoints: &[&str]) -> Setup<'s> {
    let setup = site.process(env!("CARGO_BIN_EXE_fixture-actor")).env("BUS_LOCKS", "default");
    endpoints.iter().fold(setup, |setup, endpoint| setup.arg(endpoint))
}

/// The same, with locks whose leases last for so many seconds.
pub(crate) fn actor_with_lease<'s>(site: &'s Site, endpoints: &[&str], seconds: u64) -> Setup<'s> {
    actor(site, endpoints).env("BUS_LOCK_LEASE", format!("{seconds}s"))
}

/// Sends tasks to the singleton.
pub(crate) async fn send_single(site: &Site, tasks: impl IntoIterator<Item = Task>) {
    let producer = site.producer().await;
    for sent in producer.bus().send_all(tasks.into_iter().map(Single)).await {
        sent.expect("sent");
    }
    producer.close().await;
}

/// Sends tasks to the plain processor.
pub(crate) async fn send_plain(site: &Site, tasks: impl IntoIterator<Item = Task>) {
    let producer = site.producer().await;
    for sent in producer.bus().send_all(tasks.into_iter().map(Plain)).await {
        sent.expect("sent");
    }
    producer.close().await;
}

/// Seconds between two moments of a journal.
pub(crate) fn seconds(from: u64, to: u64) -> f64 {
    (to as f64 - from as f64) / 1e9
}
