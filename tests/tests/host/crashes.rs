//! What becomes of the messages of a process that dies.

use std::collections::BTreeSet;
use std::time::Duration;

use bus_tests::site::Site;
use bus_tests::store::Counts;
use bus_tests::task::{Step, Task};
use bus_tests::wait::{stays, until_true};

use super::{actor, actor_with_lease, send_plain, send_single};

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

/// M19: one message that ends its process each time, among a hundred that are claimed with it: in the end it is the one
/// dead letter, given up on without another run, and all others are done.
#[tokio::test]
async fn one_poison_among_a_hundred_makes_one_dead_letter() {
    let site = Site::new();
    let config = "[processors.plain]\nlease = \"1s\"\nprefetch_count = 100\ndead_letter_delivery_limit = 2\n";
    let poison = Task::new(0).then(Step::Abort);
    // The others are still at it when the poison strikes, so that each crash is counted for each of them.
    let others = (1..100).map(|n| Task::new(n).sleep(30));
    send_plain(&site, std::iter::once(poison).chain(others)).await;
    let store = site.store();
    let mut deaths = 0;
    while !store.is_drained("plain") {
        assert!(deaths < 10, "it does not come to an end: {:?}", store.counts("plain"));
        let mut host = actor(&site, &["plain"]).config(config).start();
        until_true("the process dies, or everything is done", || {
            host.try_exit().is_some() || store.is_drained("plain")
        })
        .await;
        if host.try_exit().is_some() {
            deaths += 1;
        }
    }
    // Twice among others, once alone.
    assert_eq!(deaths, 3, "{}", site.runs("plain").iter().filter(|run| run.m == 0).count());
    let dead = store.dead("plain");
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert!(dead[0].reason.contains("crashed its process"), "{}", dead[0].reason);
    assert!(String::from_utf8_lossy(&dead[0].body).contains("Abort"), "it is the poison");
    let runs = site.runs("plain");
    let done: BTreeSet<u64> =
        runs.iter().filter(|run| run.how.as_deref() == Some("end")).map(|run| run.m).collect();
    assert_eq!(done, (1..100).collect(), "all others are done");
    assert_eq!(runs.iter().filter(|run| run.m == 0).count(), 3, "the poison was not run again");
}

/// M19 for a singleton, which takes nothing ahead: its poison does not keep the queue for ever.
#[tokio::test]
async fn a_poison_does_not_keep_a_singletons_queue_for_ever() {
    let site = Site::new();
    let config = "lock_lease = \"1s\"\n[processors.single]\ndead_letter_delivery_limit = 1\n";
    send_single(&site, [Task::new(0).then(Step::Abort), Task::new(1)]).await;
    let store = site.store();
    let mut deaths = 0;
    while !store.is_drained("single") {
        assert!(deaths < 6, "it does not come to an end: {:?}", store.counts("single"));
        let mut host = actor_with_lease(&site, &["single"], 1).config(config).start();
        until_true("the process dies, or everything is done", || {
            host.try_exit().is_some() || store.is_drained("single")
        })
        .await;
        if host.try_exit().is_some() {
            deaths += 1;
        }
    }
    assert_eq!(deaths, 2, "once, and once alone");
    assert_eq!(store.dead("single").len(), 1);
    let done =
        site.runs("single").iter().filter(|run| run.m == 1 && run.how.as_deref() == Some("end")).count();
    assert_eq!(done, 1);
}
