//! What becomes of the messages of a process that dies.

use std::collections::BTreeSet;
use std::time::Duration;

use bus_tests::site::Site;
use bus_tests::store::Counts;
use bus_tests::task::Task;
use bus_tests::wait::{stays, until_true};

use super::{actor, send_plain};

/// M1, M6, M9: killed with one message in its handler, nine claimed and not started, and more in the queue: every one of
/// them runs on another process.
#[tokio::test]
async fn a_kill_between_receipt_and_handler_loses_nothing() {
    let site = Site::new();
    let config = "[processors.plain]\nmax_concurrent_calls = 1\nprefetch_count = 9\nlease = \"1s\"\n";
    send_plain(&site, (0..30).map(|n| Task::new(n).wait_for(&site.path("go")))).await;
    let mut killed = actor(&site, &["plain"]).config(config).start();
    site.begun("plain", 0).await;
    let store = site.store();
    until_true("nine are claimed ahead", || store.counts("plain").claimed == 10).await;
    killed.kill();
    assert_eq!(store.counts("plain"), Counts { ready: 20, claimed: 10, ..Counts::default() });

    site.allow("go");
    let survivor = actor(&site, &["plain"]).config(config).start();
    until_true("everything is done", || store.is_drained("plain")).await;
    let pid = survivor.pid();
    let runs = site.runs("plain");
    let done: BTreeSet<u64> = runs.iter().filter(|run| run.p == pid).map(|run| run.m).collect();
    assert_eq!(done, (0..30).collect());
    // The ten that were claimed come with their count, the others as fresh ones.
    let twice: BTreeSet<u64> = runs.iter().filter(|run| run.count == 2).map(|run| run.m).collect();
    assert_eq!(twice, (0..10).collect());
    assert_eq!(store.counts("plain").dead, 0);
}

/// M3, M7: a run of many times the claim's lease is nobody else's, as long as its process lives.
#[tokio::test]
async fn a_long_run_is_not_taken_for_an_orphan() {
    let site = Site::new();
    let short = "[processors.plain]\nlease = \"1s\"\n";
    send_plain(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let one = actor(&site, &["plain"]).config(short).start();
    site.begun("plain", 1).await;
    let other = actor(&site, &["plain"]).config(short).start();
    other.started().await;
    stays("it runs once", Duration::from_secs(4), || site.runs("plain").len() == 1).await;
    site.allow("go");
    until_true("it is done", || site.store().is_drained("plain")).await;
    let runs = site.runs("plain");
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert_eq!(runs[0].count, 1);
    drop((one, other));
}

/// M2: what is claimed ahead keeps its claim for as long as it waits, many leases long: nobody else runs it.
#[tokio::test]
async fn what_waits_in_the_buffer_keeps_its_claim() {
    let site = Site::new();
    let config = "[processors.plain]\nmax_concurrent_calls = 1\nprefetch_count = 30\nlease = \"1s\"\n";
    send_plain(&site, (0..30).map(|n| Task::new(n).sleep(100))).await;
    let one = actor(&site, &["plain"]).config(config).start();
    let store = site.store();
    until_true("all are claimed", || store.counts("plain").ready == 0).await;
    let other = actor(&site, &["plain"]).config(config).start();
    until_true("everything is done", || store.is_drained("plain")).await;
    let runs = site.runs("plain");
    assert_eq!(runs.len(), 30, "each ran once");
    assert!(runs.iter().all(|run| run.p == one.pid() && run.count == 1), "{runs:?}");
    drop(other);
}
