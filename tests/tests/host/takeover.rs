//! Who runs a singleton, and when somebody else does.

use std::time::Duration;

use bus_tests::runs::{Run, assert_single, overlaps};
use bus_tests::site::{Process, Site};
use bus_tests::store::Counts;
use bus_tests::task::{Happened, Task};
use bus_tests::wait::{stays, until_true};

use super::{actor_with_lease, seconds, send_single};

/// The lock's lease where a crash is waited out, in seconds.
const LEASE: u64 = 2;

/// How fast a host takes a lock that is free: it needs no lease for that, but a machine with other things to do.
const AT_ONCE: f64 = 2.5;

/// Sends the singleton short tasks until `enough`.
async fn produce(site: &Site, from: u64, count: u64) {
    send_single(site, (from..from + count).map(|n| Task::new(n).sleep(20))).await;
}

/// The process among these that has the run of `task`.
fn holder_of<'p, 's>(site: &Site, processes: &'p mut [Process<'s>], task: u64) -> &'p mut Process<'s> {
    let pid = site.runs("single").iter().find(|run| run.m == task).expect("it has begun").p;
    processes.iter_mut().find(|process| process.pid() == pid).expect("one of these")
}

/// S15, S21: a survivor starts within the lease and 2 s after a kill, and not before the lease has run out; a restart on
/// the same machine passes for another owner.
#[tokio::test]
async fn after_a_kill_a_survivor_starts_within_the_lease() {
    let site = Site::new();
    send_single(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let mut holder = actor_with_lease(&site, &["single"], LEASE).start();
    site.begun("single", 1).await;
    let mut survivor = actor_with_lease(&site, &["single"], LEASE).start();
    survivor.started().await;
    let before = site.store().lock("queue/single").expect("a lock");
    let killed = holder.kill();
    // S21: restarted at once, with the same name at the same place.
    let mut restarted = actor_with_lease(&site, &["single"], LEASE).start();

    until_true("somebody has begun it again", || site.runs("single").len() == 2).await;
    let runs = site.runs("single");
    let took = seconds(killed, runs[1].from);
    assert!(took <= LEASE as f64 + 2.0, "it took {took} s");
    // Renewed at least once in a quarter of the lease and a fifth of that, so that most of it is still to come.
    assert!(took >= LEASE as f64 * 0.6, "nobody waited for the dead holder's lease: {took} s");
    let after = site.store().lock("queue/single").expect("a lock");
    assert_ne!(after.owner, before.owner);
    assert!(after.fence > before.fence);
    site.allow("go");
    until_true("it is done", || site.store().is_drained("single")).await;
    assert_single(&site.runs("single"));
    survivor.terminate();
    restarted.terminate();
    survivor.exit().await;
    restarted.exit().await;
}

/// S16: the only host waits for nobody, however long its own lease is.
#[tokio::test]
async fn the_first_host_acquires_at_once() {
    let site = Site::new();
    send_single(&site, [Task::new(1)]).await;
    let host = actor_with_lease(&site, &["single"], 60).start();
    let started = site.entry("started", |entry| entry.e == "started").await;
    let begun = site.begun("single", 1).await;
    assert!(seconds(started.t, begun.t) < AT_ONCE, "it took {} s", seconds(started.t, begun.t));
    drop(host);
}

/// S27: a record whose lease has long run out costs nothing, whatever the new host's own lease is.
#[tokio::test]
async fn a_dead_record_costs_nothing() {
    let site = Site::new();
    let mut dead = actor_with_lease(&site, &["single"], 1).start();
    until_true("it has the lock", || site.store().lock("queue/single").is_some()).await;
    dead.kill();
    // What is waited for here is the passing of time itself: the lease of a process that is gone.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let fence = site.store().lock("queue/single").expect("a lock").fence;
    send_single(&site, [Task::new(1)]).await;
    let host = actor_with_lease(&site, &["single"], 60).start();
    let started = site.entry("started", |entry| entry.e == "started" && entry.p == host.pid()).await;
    let begun = site.begun("single", 1).await;
    assert!(seconds(started.t, begun.t) < AT_ONCE, "it took {} s", seconds(started.t, begun.t));
    assert!(begun.fence > Some(fence));
}

/// S19: after a kill one survivor takes over, and the lock stays with it.
#[tokio::test]
async fn survivors_do_not_pass_the_lock_around() {
    let site = Site::new();
    let mut hosts: Vec<_> = (0..4).map(|_| actor_with_lease(&site, &["single"], LEASE).start()).collect();
    for host in &hosts {
        host.started().await;
    }
    send_single(&site, [Task::new(1).wait_for(&site.path("never"))]).await;
    site.begun("single", 1).await;
    holder_of(&site, &mut hosts, 1).kill();
    until_true("it is taken over", || site.runs("single").len() == 2).await;
    let store = site.store();
    let taken = store.lock("queue/single").expect("a lock");
    stays("the lock is where it is", Duration::from_secs(2 * LEASE), || {
        store.lock("queue/single").as_ref() == Some(&taken)
    })
    .await;
    assert_eq!(site.runs("single").len(), 2);
    assert_single(&site.runs("single"));
}

/// S22, S28: all but one leave at once, in the midst of work: nothing overlaps, and the one that stays goes on.
#[tokio::test]
async fn when_all_but_one_leave_at_once_nothing_overlaps() {
    let site = Site::new();
    let mut leaving: Vec<_> = (0..4).map(|_| actor_with_lease(&site, &["single"], 20).start()).collect();
    for host in &leaving {
        host.started().await;
    }
    produce(&site, 0, 60).await;
    site.begun("single", 5).await;
    let holder = site.runs("single")[0].p;
    // The one that stays is none that holds the lock now.
    let stays = leaving.iter().position(|host| host.pid() != holder).expect("there are four");
    let mut last = leaving.remove(stays);
    for host in &mut leaving {
        host.terminate();
    }
    for host in &mut leaving {
        assert!(host.exit().await.success());
    }
    // Far less than the lease of 20 s: it was released, not run out.
    until_true("the one that stays has done the rest", || site.store().is_drained("single")).await;
    last.terminate();
    assert!(last.exit().await.success());
    let runs = site.runs("single");
    assert_eq!(runs.len(), 60, "each ran once");
    assert_single(&runs);
}

/// S28, S29: on SIGTERM the run is finished, then the lock released, and a standby starts within a second, although the
/// lease would last for a minute. The client that releases it is closed after that.
#[tokio::test]
async fn alone_after_sigterm_a_standby_starts_within_a_second_of_the_drain() {
    let site = Site::new();
    send_single(&site, [Task::new(1).wait_for(&site.path("go")), Task::new(2)]).await;
    let mut holder = actor_with_lease(&site, &["single"], 60).start();
    site.begun("single", 1).await;
    let mut standby = actor_with_lease(&site, &["single"], 60).start();
    standby.started().await;
    holder.terminate();
    site.entry("the holder drains", |entry| entry.e == "stopping").await;
    let first = site.store().lock("queue/single").expect("a lock");
    assert_eq!(first.ended, None, "not before its run has ended");
    site.allow("go");
    let second = site.begun("single", 2).await;
    assert!(holder.exit().await.success());
    let runs = site.runs("single");
    let drained = runs[0].to.expect("it has ended");
    assert!(seconds(drained, second.t) < 1.0, "it took {} s", seconds(drained, second.t));
    assert_single(&runs);
    assert_eq!(runs.len(), 2, "and nothing was repeated: {runs:?}");

    // S29: the last one of all finds nobody to hand over to, and has released it all the same.
    standby.terminate();
    assert!(standby.exit().await.success());
    let last = site.store().lock("queue/single").expect("a lock");
    assert!(last.fence > first.fence);
    assert_eq!(last.ended.as_deref(), Some("clean"));
}

/// S34: who does not have the lock claims nothing, so that no claim runs out while the lock is waited for.
#[tokio::test]
async fn a_standby_claims_nothing() {
    let site = Site::new();
    send_single(&site, [Task::new(0).wait_for(&site.path("go"))]).await;
    send_single(&site, (1..20).map(Task::new)).await;
    let holder = actor_with_lease(&site, &["single"], LEASE).start();
    site.begun("single", 0).await;
    let standby = actor_with_lease(&site, &["single"], LEASE).start();
    standby.started().await;
    let store = site.store();
    let one = Counts { ready: 19, claimed: 1, ..Counts::default() };
    stays("one message is claimed, and no more", Duration::from_secs(LEASE), || {
        store.counts("single") == one
    })
    .await;
    site.allow("go");
    until_true("all is done", || store.is_drained("single")).await;
    let runs = site.runs("single");
    assert_eq!(runs.len(), 20);
    assert!(runs.iter().all(|run| run.count == 1 && run.p == holder.pid()), "{runs:?}");
    assert_single(&runs);
}

/// S25: each subscription has a lock of its own: both work at the same time, each on one host.
#[tokio::test]
async fn two_singleton_subscriptions_of_one_event_progress_at_once() {
    let site = Site::new();
    let both = ["happened/first", "happened/second"];
    let hosts: Vec<_> = (0..2).map(|_| actor_with_lease(&site, &both, LEASE).start()).collect();
    for host in &hosts {
        host.started().await;
    }
    let producer = site.producer().await;
    for n in 0..20 {
        // The first of each waits for the test, which waits for both.
        let task = if n == 0 { Task::new(0).wait_for(&site.path("go")) } else { Task::new(n).sleep(10) };
        producer.bus().publish(Happened(task)).await.expect("published");
    }
    for subscription in both {
        site.begun(subscription, 0).await;
    }
    site.allow("go");
    let store = site.store();
    until_true("both have done all", || both.iter().all(|name| store.is_drained(name))).await;
    let (first, second): (Vec<Run>, Vec<Run>) = (site.runs(both[0]), site.runs(both[1]));
    for runs in [&first, &second] {
        assert_eq!(runs.len(), 20, "each has its own copy of each event");
        assert_single(runs);
    }
    assert!(!overlaps(&[first, second].concat()).is_empty(), "they ran side by side");
    for name in ["subscription/happened/first", "subscription/happened/second"] {
        assert!(store.lock(name).is_some(), "there is no lock {name}");
    }
}

/// §5.7: who would guard the same endpoint by another lock (here by another namespace) does not run beside the one who is
/// at it, says why, and takes over when that one is gone.
#[tokio::test]
async fn a_host_with_another_lock_for_the_same_endpoint_waits() {
    let site = Site::new();
    send_single(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let mut one = actor_with_lease(&site, &["single"], LEASE).env("BUS_NAMESPACE", "blue").start();
    site.begun("single", 1).await;
    let two = actor_with_lease(&site, &["single"], LEASE).env("BUS_NAMESPACE", "green").start();
    let store = site.store();
    until_true("it has its own lock", || store.lock("green/queue/single").is_some()).await;
    until_true("it says why it waits", || two.said().contains("bound to another lock")).await;
    stays("it waits", Duration::from_secs(LEASE), || site.runs("single").len() == 1).await;
    site.allow("go");
    until_true("it is done", || store.is_drained("single")).await;
    one.terminate();
    assert!(one.exit().await.success());
    send_single(&site, [Task::new(2)]).await;
    assert_eq!(site.begun("single", 2).await.p, two.pid());
    assert_single(&site.runs("single"));
}
