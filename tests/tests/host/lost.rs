//! Holders whose lock is gone although they did nothing wrong.

use bus_tests::runs::assert_single;
use bus_tests::site::Site;
use bus_tests::task::{Step, Task};
use bus_tests::wait::until_true;

use super::{actor_with_lease, send_single};

/// The lock's lease, in seconds.
const LEASE: u64 = 2;

/// S1, S6, S14: somebody else has the lock: the next renewal finds out, the run is dropped, and goes nowhere. Nobody
/// starts beside it, and once the thief's lease has run out somebody does.
#[tokio::test]
async fn a_holder_whose_lock_was_taken_stops_and_becomes_a_candidate_again() {
    let site = Site::new();
    send_single(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let host = actor_with_lease(&site, &["single"], LEASE).start();
    let begun = site.begun("single", 1).await;
    let store = site.store();
    store.steal_lock("queue/single");
    until_true("its run is dropped", || {
        site.runs("single").iter().any(|run| run.how.as_deref() == Some("dropped"))
    })
    .await;
    // S17: the same host again, under a fence above that of the thief.
    until_true("it is a candidate again", || site.runs("single").len() == 2).await;
    site.allow("go");
    until_true("it is done", || store.is_drained("single")).await;
    let runs = site.runs("single");
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert!(runs[1].fence > begun.fence.map(|fence| fence + 1), "{runs:?}");
    assert_single(&runs);
    drop(host);
}

/// §5.3: a run that can be neither kept nor dropped ends its process before anyone else starts, where that was asked for.
#[tokio::test]
async fn on_overrun_exit_ends_the_process_before_a_successor_starts() {
    let site = Site::new();
    send_single(&site, [Task::new(1).then(Step::BlockUntil(site.path("go")))]).await;
    let setup = || actor_with_lease(&site, &["single"], LEASE).env("BUS_ON_OVERRUN", "exit");
    let mut holder = setup().start();
    site.begun("single", 1).await;
    let standby = setup().start();
    standby.started().await;
    site.store().steal_lock("queue/single");
    // Before anyone else starts it, as is looked at below.
    let status = holder.exit().await;
    assert_eq!(status.code(), Some(bus::singleton::OVERRUN_EXIT_CODE), "{}", holder.said());
    site.allow("go");
    until_true("the other one does it", || site.store().is_drained("single")).await;
    assert_eq!(site.runs("single").len(), 2);
    assert_single(&site.runs("single"));
}

/// §5.3, the default: a run that can be neither kept nor dropped is named; what it still wants to write is refused.
#[tokio::test]
async fn on_overrun_log_names_the_run_and_its_late_writes_are_refused() {
    let site = Site::new();
    let late = Task::new(1).then(Step::BlockUntil(site.path("go"))).then(Step::Check).then(Step::Send(1));
    send_single(&site, [late]).await;
    let holder = actor_with_lease(&site, &["single"], LEASE).start();
    let begun = site.begun("single", 1).await;
    let standby = actor_with_lease(&site, &["single"], LEASE).start();
    standby.started().await;
    site.store().steal_lock("queue/single");
    let pid = standby.pid();
    // It blocks for ever there too, but has the lock.
    until_true("the other one has begun", || site.runs("single").iter().any(|run| run.p == pid)).await;
    assert!(holder.said().contains("does not end"), "{}", holder.said());
    site.allow("go");
    let refused = site
        .entry("its verdict is refused", |entry| entry.e == "settle.refused" && entry.fence == begun.fence);
    assert_eq!(refused.await.p, holder.pid());
    until_true("the other one has done it", || site.store().is_drained("single")).await;
    let of_holder = site.entries().into_iter().filter(|entry| entry.p == holder.pid()).collect::<Vec<_>>();
    assert!(of_holder.iter().any(|entry| entry.e == "lost"), "{of_holder:#?}");
    assert!(of_holder.iter().any(|entry| entry.e == "not sent"), "{of_holder:#?}");
    assert_eq!(site.store().counts("out").ready, 1, "what the other one sent");
}
