//! A host whose worker threads are all blocked.

use std::time::Duration;

use bus_tests::runs::assert_single;
use bus_tests::site::Site;
use bus_tests::task::{Step, Task};
use bus_tests::wait::{stays, until_true};

use super::{actor_with_lease, send_plain, send_single};

/// The lock's lease, in seconds: renewed in time also where two cores have more to do than this.
const LEASE: u64 = 4;

/// S10: for three leases no worker thread runs anything, and yet the lock is renewed, nobody else acquires it, and the
/// run's send and settlement are taken.
#[tokio::test]
async fn a_lock_is_renewed_while_every_worker_thread_is_blocked() {
    let site = Site::new();
    let blocked = Task::new(1).block(3_250 * LEASE).then(Step::Check).then(Step::Send(1));
    send_single(&site, [blocked]).await;
    let setup = actor_with_lease(&site, &["single", "plain"], LEASE).env("TOKIO_WORKER_THREADS", "2");
    let mut holder = setup.start();
    site.begun("single", 1).await;
    send_plain(&site, [Task::new(2).block(3_000 * LEASE)]).await;
    until_true("the other thread is blocked too", || !site.runs("plain").is_empty()).await;
    let mut standby = actor_with_lease(&site, &["single"], LEASE).start();
    standby.started().await;
    let store = site.store();
    let before = store.lock("queue/single").expect("a lock");
    let done = || site.runs("single").iter().any(|run| run.to.is_some());
    stays("the same owner under the same fence", Duration::from_millis(2_500 * LEASE), || {
        done() || store.lock("queue/single").as_ref() == Some(&before)
    })
    .await;

    let fence = before.fence;
    let settled = |entry: &bus_tests::journal::Entry| entry.e == "settle.ok" && entry.fence == Some(fence);
    site.entry("the run is settled under its own fence", settled).await;
    let entries = site.entries();
    assert!(entries.iter().any(|entry| entry.e == "held"), "its term was still held");
    assert!(entries.iter().any(|entry| entry.e == "sent"), "what it sent was taken");
    let runs = site.runs("single");
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert_single(&runs);
    standby.kill();
    holder.kill();
}
