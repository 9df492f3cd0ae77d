//! SIGTERM, once and twice.

use std::time::Duration;

use bus_tests::site::Site;
use bus_tests::store::Counts;
use bus_tests::task::Task;
use bus_tests::wait::{until, until_true};
use rustix::process::Signal;

use super::{actor, seconds, send_plain, send_single};

const BULK: &str = "
[processors.plain]
max_concurrent_calls = 100
prefetch_count = 1000
";

/// M16, M18, S35: what is in flight finishes; what was claimed ahead is there for others at once, as if it had never been
/// claimed; and the process ends as soon as its last run has.
#[tokio::test]
async fn alone_on_sigterm_runs_finish_and_what_was_claimed_ahead_is_free_at_once() {
    // The 300 ms are a promise for a machine that has the time: it has to be kept once in three.
    let mut slowest = Vec::new();
    for _ in 0..3 {
        let site = Site::new();
        send_plain(&site, (0..1_100).map(|n| Task::new(n).wait_for(&site.path("go")))).await;
        let mut host = actor(&site, &["plain"]).config(BULK).start();
        let store = site.store();
        let all_claimed = Counts { claimed: 1_100, ..Counts::default() };
        until_true("100 run and 1,000 are claimed ahead", || {
            site.runs("plain").len() == 100 && store.counts("plain") == all_claimed
        })
        .await;

        host.terminate();
        let released = Counts { ready: 1_000, claimed: 100, ..Counts::default() };
        until_true("the prefetched ones are free", || store.counts("plain") == released).await;
        assert_eq!(store.deliveries_of_ready("plain"), vec![0; 1_000], "not one of them was counted");
        assert!(host.try_exit().is_none(), "the runs are still on");

        let mut other = actor(&site, &["plain"]).config(BULK).start();
        let pid = other.pid();
        until_true("another process has them", || {
            site.runs("plain").iter().filter(|run| run.p == pid && run.count == 1).count() == 100
        })
        .await;
        site.allow("go");
        let (status, at) = host.exit_within(Duration::from_secs(15)).await;
        assert!(status.success(), "it exits with {status}");

        until_true("everything is done", || store.is_drained("plain")).await;
        other.terminate();
        assert!(other.exit().await.success());
        let runs = site.runs("plain");
        assert_eq!(runs.len(), 1_100, "each message ran once");
        assert!(runs.iter().all(|run| run.how.as_deref() == Some("end") && run.count == 1));
        assert_eq!(store.counts("plain"), Counts::default());

        let of_first = runs.iter().filter(|run| run.p == host.pid());
        let last_end = of_first.filter_map(|run| run.to).max().expect("it had runs");
        let took = seconds(last_end, at);
        if took <= 0.3 {
            return;
        }
        slowest.push(took);
    }
    panic!("from the end of the last run to the end of the process it took {slowest:?} s");
}

/// The second signal ends the grace period: what still runs is dropped, not counted, and free at once.
#[tokio::test]
async fn a_second_sigterm_skips_the_grace_period() {
    for signal in [Signal::TERM, Signal::INT] {
        let site = Site::new();
        send_plain(&site, [Task::new(1).sleep(60_000)]).await;
        send_single(&site, [Task::new(2).sleep(60_000)]).await;
        let mut host = actor(&site, &["plain", "single"]).start();
        site.begun("plain", 1).await;
        site.begun("single", 2).await;
        host.signal(signal);
        let pid = host.pid();
        site.entry("it has heard", |entry| entry.e == "stopping" && entry.p == pid).await;
        assert!(host.try_exit().is_none(), "the grace period is 30 s");
        let hurried = host.signal(signal);
        let (_, at) = host.exit_within(Duration::from_secs(10)).await;
        assert!(seconds(hurried, at) < 5.0, "it took {} s", seconds(hurried, at));
        let runs = [site.runs("plain"), site.runs("single")].concat();
        assert!(runs.iter().all(|run| run.how.as_deref() == Some("dropped")), "{runs:?}");
        assert_eq!(site.store().deliveries_of_ready("plain"), [0], "released, and not counted");
        assert_eq!(site.store().deliveries_of_ready("single"), [0], "released, and not counted");
        assert_eq!(site.store().lock("queue/single").expect("a lock").ended.as_deref(), Some("cut"));
    }
}

/// A host that has nothing to do ends at once, and says that all is well.
#[tokio::test]
async fn an_idle_host_ends_at_once() {
    let site = Site::new();
    let mut host = actor(&site, &[]).start();
    host.started().await;
    let asked = host.terminate();
    let (status, at) = host.exit_within(Duration::from_secs(10)).await;
    assert!(status.success(), "it exits with {status}");
    assert!(seconds(asked, at) < 2.0, "it took {} s", seconds(asked, at));
}

/// §7: however much waits, the end takes no longer for it.
#[tokio::test]
async fn a_backlog_does_not_delay_the_end() {
    let site = Site::new();
    send_plain(&site, (0..20_000).map(Task::new)).await;
    let mut host = actor(&site, &["plain"]).start();
    until("it is at work", || (!site.runs("plain").is_empty()).then_some(())).await;
    let asked = host.terminate();
    let (status, at) = host.exit_within(Duration::from_secs(10)).await;
    assert!(status.success(), "it exits with {status}");
    assert!(seconds(asked, at) < 3.0, "it took {} s", seconds(asked, at));
    let counts = site.store().counts("plain");
    assert_eq!(counts.claimed, 0, "it left no claim behind");
    assert_eq!(counts.ready + site.runs("plain").len() as u64, 20_000, "each ran once or is still there");
    assert!(site.store().deliveries_of_ready("plain").iter().all(|count| *count == 0));
}

/// §7, M12: a store that does not move, because the process that has it was frozen while it wrote, keeps nobody from
/// ending in time, neither a plain processor nor a singleton that has a verdict to tell; and what was not told comes
/// again.
#[tokio::test]
async fn a_store_that_stands_still_does_not_keep_a_process_from_ending() {
    let site = Site::new();
    send_plain(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    send_single(&site, [Task::new(2).wait_for(&site.path("go"))]).await;
    let setup = || actor(&site, &["plain", "single"]).config("[processors.plain]\nlease = \"2s\"\n");
    let mut host = setup().env("BUS_SHUTDOWN_GRACE_PERIOD", "1s").start();
    site.begun("plain", 1).await;
    site.begun("single", 2).await;

    let gate = std::fs::File::open(site.path("bus.db.lock")).expect("the gate");
    gate.lock().expect("passed");
    site.allow("go");
    until_true("both runs have ended", || {
        ["plain", "single"].iter().all(|at| site.runs(at).iter().any(|run| run.how.is_some()))
    })
    .await;
    host.terminate();
    let (status, _) = host.exit_within(Duration::from_secs(11)).await;
    assert_eq!(status.code(), Some(1), "{}", host.said());
    assert!(host.said().contains("the store did not take in time"), "{}", host.said());

    gate.unlock().expect("let go");
    let _other = setup().start();
    until_true("both are done", || ["plain", "single"].iter().all(|queue| site.store().is_drained(queue)))
        .await;
}

/// The same at the start, which waits for the store: it can be called off.
#[tokio::test]
async fn a_start_that_waits_for_a_store_that_stands_still_can_be_called_off() {
    let site = Site::new();
    send_plain(&site, [Task::new(1)]).await;
    let gate = std::fs::File::open(site.path("bus.db.lock")).expect("the gate");
    gate.lock().expect("passed");
    let mut host = actor(&site, &["plain", "single"]).start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(host.try_exit().is_none(), "it waits: {}", host.said());
    host.terminate();
    let (status, _) = host.exit_within(Duration::from_secs(11)).await;
    assert!(status.success(), "{}", host.said());
}
