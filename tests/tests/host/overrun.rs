//! Handlers that outlive the grace period.

use std::time::Duration;

use bus_tests::runs::assert_single;
use bus_tests::site::Site;
use bus_tests::task::{Step, Task};
use bus_tests::wait::until_true;

use super::{actor_with_lease, seconds, send_plain, send_single};

/// The grace period of these tests, in seconds.
const GRACE: u64 = 1;

/// What became of the holder's lock when its process had ended.
#[derive(Debug, PartialEq)]
enum Left {
    /// Neither released nor taken by anybody.
    Alone,
    /// Released as cut.
    Cut,
    /// Released, and perhaps taken by the standby already.
    Free,
}

/// Two processes, of which the holder of the singleton is told to end in the middle of `task`; answers how long that
/// took, and what became of its lock. However it ends: no overlap, and the other one goes on.
async fn told_to_end(site: &Site, task: Task) -> (f64, Left) {
    let number = task.n;
    send_single(site, [task]).await;
    let setup =
        || actor_with_lease(site, &["single"], 2).env("BUS_SHUTDOWN_GRACE_PERIOD", format!("{GRACE}s"));
    let mut holder = setup().start();
    site.begun("single", number).await;
    let mut standby = setup().start();
    standby.started().await;
    let before = site.store().lock("queue/single").expect("a lock");

    let asked = holder.terminate();
    let (_, at) = holder.exit_within(Duration::from_secs(GRACE + 10)).await;
    let after = site.store().lock("queue/single").expect("a lock");
    let left = match after.ended.as_deref() {
        _ if after.owner != before.owner => Left::Free,
        Some("clean") => Left::Free,
        Some(_) => Left::Cut,
        None => Left::Alone,
    };

    site.allow("go");
    send_single(site, [Task::new(99)]).await;
    site.begun("single", 99).await;
    until_true("the other one has done everything", || site.store().is_drained("single")).await;
    standby.terminate();
    standby.exit().await;
    let runs = site.runs("single");
    assert_single(&runs);
    assert!(runs.iter().filter(|run| run.m == number).all(|run| run.to.is_some()));
    assert_eq!(site.store().counts("single").dead, 0);
    (seconds(asked, at), left)
}

/// §5.4: a run that waits is dropped and joined, and its lock released as cut.
#[tokio::test]
async fn a_run_of_three_grace_periods_is_dropped_and_its_lock_released_as_cut() {
    let site = Site::new();
    // The second time, by the other host, it finds its file.
    let (took, left) = told_to_end(&site, Task::new(1).wait_for(&site.path("go"))).await;
    assert_eq!(left, Left::Cut);
    let runs = site.runs("single");
    assert_eq!(runs[0].how.as_deref(), Some("dropped"));
    assert!(took >= GRACE as f64, "it was given its grace period: {took} s");
    assert!(took < GRACE as f64 + 4.0, "and not much more: {took} s");
    // §5.10: a cut frees nothing early.
    assert!(
        seconds(runs[0].to.unwrap_or_default(), runs[1].from) > 1.0,
        "the successor waited for the lease"
    );
}

/// §5.4: a run that blocks its thread for three grace periods ends by itself within the last act; its work counts.
#[tokio::test]
async fn a_run_that_blocks_for_three_grace_periods_is_waited_for() {
    let site = Site::new();
    let (took, left) = told_to_end(&site, Task::new(1).block(GRACE * 3_000)).await;
    let runs = site.runs("single");
    assert_eq!(runs.iter().filter(|run| run.m == 1).count(), 1, "it was not repeated: {runs:?}");
    assert_eq!(runs[0].how.as_deref(), Some("end"));
    assert!(took < GRACE as f64 + 10.0, "{took} s");
    assert_eq!(left, Left::Free, "it ended by itself, and its verdict is with the store");
}

/// §5.4: a run that blocks its thread for ever cannot be dropped: the process ends all the same, and only the end of the
/// lease lets the other one in.
#[tokio::test]
async fn a_run_that_blocks_for_ever_ends_with_its_process_and_its_lock_is_left_to_expire() {
    let site = Site::new();
    let go = site.path("go");
    let (took, left) = told_to_end(&site, Task::new(1).then(Step::BlockUntil(go))).await;
    assert!(took < GRACE as f64 + 10.0, "{took} s");
    assert_eq!(left, Left::Alone, "nobody released it");
    let runs = site.runs("single");
    assert_eq!(runs[0].how.as_deref(), Some("exit"));
    assert_eq!(runs.iter().filter(|run| run.m == 1).count(), 2, "it was delivered again: {runs:?}");
}

/// §5.3: work that was given to the term's own threads cannot be dropped, and is waited for although its run is.
#[tokio::test]
async fn work_given_to_the_term_is_waited_for() {
    let site = Site::new();
    let (took, _) = told_to_end(&site, Task::new(1).then(Step::TermBlocking(GRACE * 3_000))).await;
    assert!(took < GRACE as f64 + 10.0, "{took} s");
    let runs = site.runs("single");
    assert_eq!(runs[0].how.as_deref(), Some("dropped"));
    let entries = site.entries();
    let worked = entries.iter().find(|entry| entry.e == "worked").expect("its work came to its end");
    assert_eq!(worked.p, runs[0].p);
    assert!(runs[1].from > worked.t, "its successor began beside it: {runs:?}");
}

/// §7: the process ends within grace + 10 s also if not one of its worker threads is left to see to it.
#[tokio::test]
async fn a_process_whose_every_thread_is_blocked_ends_all_the_same() {
    let site = Site::new();
    let never = Step::BlockUntil(site.path("never"));
    send_plain(&site, (0..2).map(|n| Task::new(n).then(never.clone()))).await;
    let setup = actor_with_lease(&site, &["plain"], 2).env("BUS_SHUTDOWN_GRACE_PERIOD", format!("{GRACE}s"));
    let mut host = setup.env("TOKIO_WORKER_THREADS", "2").start();
    until_true("both threads are blocked", || site.runs("plain").len() == 2).await;
    host.terminate();
    let (status, _) = host.exit_within(Duration::from_secs(GRACE + 10)).await;
    assert_eq!(status.code(), Some(1), "{}", host.said());
}

/// §7: nor when that run was dropped long before, because its time was up.
#[tokio::test]
async fn blocking_work_that_a_late_run_left_behind_does_not_keep_the_process() {
    let site = Site::new();
    send_plain(&site, [Task::new(1).then(Step::SpawnBlocking(60_000))]).await;
    let config = "[processors.plain]\nmessage_lock_timeout = \"1s\"\n";
    let setup = actor_with_lease(&site, &["plain"], 2).env("BUS_SHUTDOWN_GRACE_PERIOD", format!("{GRACE}s"));
    let mut host = setup.config(config).start();
    site.begun("plain", 1).await;
    until_true("it was dropped", || site.runs("plain")[0].how.as_deref() == Some("dropped")).await;
    host.terminate();
    host.exit_within(Duration::from_secs(GRACE + 10)).await;
}

/// §7: nor does it wait for blocking work that a dropped run has left on the runtime's own threads, which the runtime
/// would.
#[tokio::test]
async fn blocking_work_that_a_dropped_run_left_behind_does_not_keep_the_process() {
    let site = Site::new();
    send_plain(&site, [Task::new(1).then(Step::SpawnBlocking(60_000))]).await;
    let setup = actor_with_lease(&site, &["plain"], 2).env("BUS_SHUTDOWN_GRACE_PERIOD", format!("{GRACE}s"));
    let mut host = setup.start();
    site.begun("plain", 1).await;
    host.terminate();
    host.exit_within(Duration::from_secs(GRACE + 10)).await;
    assert_eq!(site.store().deliveries_of_ready("plain"), [0], "it was released, and not counted");
}
