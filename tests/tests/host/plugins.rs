//! Plugins, from the start of a process to its end.

use std::time::Duration;

use bus_tests::journal::Entry;
use bus_tests::site::{Process, Setup, Site};
use bus_tests::store::Counts;
use bus_tests::task::Task;
use bus_tests::wait::until_true;

use super::{actor, seconds, send_plain, send_single};

/// A host with two plugins that do what is said here.
fn host<'s>(site: &'s Site, endpoints: &[&str], script: &str) -> Setup<'s> {
    actor(site, endpoints).env("BUS_TEST_PLUGIN", script)
}

/// Waits for what this process writes down.
async fn noted(site: &Site, process: &Process<'_>, what: &str) -> Entry {
    let pid = process.pid();
    site.entry(what, |entry| entry.e == what && entry.p == pid).await
}

/// When each of these was written down, which has to be in this order.
fn assert_in_order(site: &Site, wanted: &[&str]) {
    let entries = site.entries();
    let mut rest = entries.iter();
    for what in wanted {
        assert!(
            rest.any(|entry| entry.e == *what),
            "{what:?} does not follow in {:?}",
            entries.iter().map(|entry| &entry.e).collect::<Vec<_>>()
        );
    }
}

/// §7: prepared before anything else, started after the processors, told to stop at once, awaited when what was in flight
/// has ended and the locks are released; what `stop` of one takes does not keep the other from being told.
#[tokio::test]
async fn plugins_are_told_at_the_beginning_of_the_end_and_awaited_after_the_locks_are_released() {
    let site = Site::new();
    send_single(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let mut host = host(&site, &["single"], "first stop waits").start();
    noted(&site, &host, "second start ends").await;
    site.begun("single", 1).await;
    host.terminate();
    noted(&site, &host, "first stop begins").await;
    noted(&site, &host, "second stop ends").await;
    assert!(site.runs("single").iter().all(|run| run.to.is_none()), "the run is still on");

    site.allow("go");
    noted(&site, &host, "lock.released").await;
    assert!(host.try_exit().is_none(), "the first one is awaited");
    site.allow("first stop");
    let (status, at) = host.exit_within(Duration::from_secs(15)).await;
    assert!(status.success(), "it exits with {status}");
    let ended = noted(&site, &host, "first stop ends").await;
    assert!(seconds(ended.t, at) < 2.0, "not a moment longer than needed: {} s", seconds(ended.t, at));
    assert_in_order(
        &site,
        &["first prepared", "second prepared", "started", "first start begins", "first start ends"],
    );
    assert_in_order(&site, &["first start ends", "second start begins", "second stop begins", "end"]);
}

/// What goes wrong in a plugin's end is logged, and changes nothing.
#[tokio::test]
async fn a_plugin_that_fails_or_panics_while_stopping_fails_nothing() {
    let site = Site::new();
    send_plain(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let mut host = host(&site, &["plain"], "first stop fails, second stop panics").start();
    noted(&site, &host, "second start ends").await;
    site.begun("plain", 1).await;
    host.terminate();
    noted(&site, &host, "plugin.failed").await;
    site.allow("go");
    assert!(host.exit().await.success(), "{}", host.said());
    let failed = site.entries().iter().filter(|entry| entry.e == "plugin.failed").count();
    assert_eq!(failed, 2, "both are told: {}", host.said());
    assert!(host.said().contains("the plugin does not want to"), "{}", host.said());
    assert_eq!(site.store().counts("plain"), Counts::default(), "the run was awaited and settled");
}

/// A plugin that does not come to its end has at least 5 s, whatever the grace period is, and holds nobody up for longer.
#[tokio::test]
async fn a_plugin_that_hangs_while_stopping_is_given_five_seconds_and_left_behind() {
    let site = Site::new();
    let mut host =
        host(&site, &["plain"], "first stop hangs").env("BUS_SHUTDOWN_GRACE_PERIOD", "100ms").start();
    noted(&site, &host, "second start ends").await;
    let asked = host.terminate();
    let (status, at) = host.exit_within(Duration::from_secs(15)).await;
    let took = seconds(asked, at);
    assert!(status.success(), "it exits with {status}: {}", host.said());
    assert!((5.0..9.5).contains(&took), "it took {took} s");
    noted(&site, &host, "plugin.late").await;
}

/// Within a grace period that is long, the second signal is all that is needed.
#[tokio::test]
async fn a_second_sigterm_ends_the_wait_for_plugins() {
    let site = Site::new();
    let mut host = host(&site, &["plain"], "first stop hangs").start();
    noted(&site, &host, "second start ends").await;
    host.terminate();
    noted(&site, &host, "first stop begins").await;
    let hurried = host.terminate();
    let (_, at) = host.exit_within(Duration::from_secs(20)).await;
    let took = seconds(hurried, at);
    assert!(took < 9.5, "it took {took} s, of a grace period of 30");
}

/// One that fails or panics while starting fails the host, which ends as it always does: what runs is awaited, what has
/// been started is told, what comes after it is not even begun.
#[tokio::test]
async fn a_plugin_that_fails_or_panics_while_starting_fails_the_host_which_drains() {
    for (how, said) in [("fails", "the plugin does not want to"), ("panics", "it panicked")] {
        let site = Site::new();
        send_plain(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
        let script = format!("second start waits, second start {how}");
        let mut host = host(&site, &["plain"], &script).start();
        site.begun("plain", 1).await;
        noted(&site, &host, "second start begins").await;
        site.allow("second start");
        noted(&site, &host, "first stop ends").await;
        assert!(host.try_exit().is_none(), "the run is awaited");
        site.allow("go");
        let status = host.exit().await;
        assert_eq!(status.code(), Some(1), "{}", host.said());
        assert!(host.said().contains(said), "{}", host.said());
        assert!(!site.entries().iter().any(|entry| entry.e == "second stop begins"), "it had not started");
        assert_eq!(site.store().counts("plain"), Counts::default(), "the run was settled");
    }
}

/// What fails while it is prepared keeps the host from touching anything.
#[tokio::test]
async fn a_plugin_that_cannot_be_prepared_fails_the_host_before_anything_is_consumed() {
    let site = Site::new();
    send_plain(&site, [Task::new(1)]).await;
    let mut host = host(&site, &["plain"], "second prepare fails").start();
    assert_eq!(host.exit().await.code(), Some(1), "{}", host.said());
    assert!(host.said().contains("the plugin cannot be prepared"), "{}", host.said());
    assert!(host.said().contains("second"), "it is named: {}", host.said());
    assert_eq!(site.store().counts("plain"), Counts { ready: 1, ..Counts::default() });
    assert!(!site.entries().iter().any(|entry| entry.e == "first start begins"));
}

/// M17: a start that a plugin holds up can be called off, and what runs by then is drained.
#[tokio::test]
async fn sigterm_while_a_plugin_is_starting_drains() {
    let site = Site::new();
    send_plain(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let mut host = host(&site, &["plain"], "second start hangs").start();
    site.begun("plain", 1).await;
    noted(&site, &host, "second start begins").await;
    host.terminate();
    noted(&site, &host, "first stop ends").await;
    site.allow("go");
    assert!(host.exit().await.success(), "{}", host.said());
    assert_eq!(site.store().counts("plain"), Counts::default(), "the run was settled");
    until_true("it is told that it ended", || {
        site.runs("plain").iter().all(|run| run.how.as_deref() == Some("end"))
    })
    .await;
}
