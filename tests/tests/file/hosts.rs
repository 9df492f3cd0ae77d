//! Hosts as processes, whose messages are in SQLite and whose locks are in a directory.

use std::time::Duration;

use bus::contract::LockRecord;
use bus_tests::runs::{Run, assert_single};
use bus_tests::shim::{Ahead, Hang, Machine, NoLinks, WallClock};
use bus_tests::site::{Process, Setup, Site};
use bus_tests::task::{Ordered, Single, Step, Task};
use bus_tests::wait::{stays, until, until_true};

use crate::open;

/// The locks' lease where a crash is waited out.
const LEASE: Duration = Duration::from_secs(2);
/// What a take-over may take beside what is waited for.
const SLACK: Duration = Duration::from_secs(2);

/// Where the directory's file system is not asked, since no two machines share it here.
const FLEET: &str = "?reach=fleet&file_system=any&poll=250ms";

fn host<'s>(site: &'s Site, parameters: &str, lease: Duration) -> Setup<'s> {
    site.process(env!("CARGO_BIN_EXE_fixture-actor"))
        .env("BUS_LOCKS", format!("file://{}{parameters}", site.path("locks").display()))
        .env("BUS_LOCK_LEASE", format!("{}s", lease.as_secs()))
        .arg("single")
}

async fn send(site: &Site, tasks: impl IntoIterator<Item = Task>) {
    let producer = site.producer().await;
    for sent in producer.bus().send_all(tasks.into_iter().map(Single)).await {
        sent.unwrap();
    }
    producer.close().await;
}

/// The record of the singleton's lock.
async fn record(site: &Site) -> LockRecord {
    let locks = open(&site.path("locks"), "").await.unwrap();
    locks.inspect(&"queue/single".into()).await.unwrap().expect("it has been taken")
}

fn between(from: u64, to: u64) -> Duration {
    Duration::from_nanos(to.saturating_sub(from))
}

fn has_ended(run: &Run) -> bool {
    run.how.as_deref() == Some("end")
}

async fn ends(host: &mut Process<'_>) {
    host.terminate();
    assert!(host.exit().await.success(), "{}", host.said());
}

/// S15, S18, S21: killed while it holds the lock, and restarted at once at the same place: the lease is waited out, then
/// a survivor starts, with another owner and a higher fence.
#[tokio::test]
async fn after_a_kill_a_survivor_starts_within_the_lease() {
    let site = Site::new();
    send(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let mut holder = host(&site, "", LEASE).start();
    site.begun("single", 1).await;
    let mut survivor = host(&site, "", LEASE).start();
    survivor.started().await;
    let before = record(&site).await;
    let killed = holder.kill();
    let mut restarted = host(&site, "", LEASE).start();
    until_true("it has begun again", || site.runs("single").len() == 2).await;
    let took = between(killed, site.runs("single")[1].from);
    assert!(took <= LEASE + SLACK, "it took {took:?}");
    assert!(took >= LEASE.mul_f64(0.6), "nobody waited for the dead holder's lease: {took:?}");
    let after = record(&site).await;
    assert!(after.owner != before.owner && after.fence > before.fence);
    site.allow("go");
    until_true("it is done", || site.store().is_drained("single")).await;
    assert_single(&site.runs("single"));
    ends(&mut survivor).await;
    ends(&mut restarted).await;
}

/// S18: killed again and again, whatever it is just doing, and restarted: there is always one that does the work, and
/// nothing overlaps.
#[tokio::test]
async fn whenever_hosts_are_killed_somebody_goes_on() {
    const TASKS: u64 = 120;
    let site = Site::new();
    let lease = Duration::from_secs(1);
    send(&site, (0..TASKS).map(|n| Task::new(n).sleep(10))).await;
    let mut hosts: Vec<_> = (0..2).map(|_| host(&site, "", lease).start()).collect();
    for round in 0..10_u64 {
        let ended = || site.runs("single").iter().filter(|run| has_ended(run)).count();
        let before = ended();
        until_true("somebody goes on", || ended() > before || site.store().is_drained("single")).await;
        // At another moment of the lease each time, and in the midst of starting.
        tokio::time::sleep(Duration::from_millis(37 * round)).await;
        let index = usize::try_from(round % 2).unwrap();
        hosts[index].kill();
        hosts[index] = host(&site, "", lease).start();
    }
    until_true("all is done", || site.store().is_drained("single")).await;
    assert_single(&site.runs("single"));
    let done: std::collections::BTreeSet<u64> =
        site.runs("single").iter().filter(|run| has_ended(run)).map(|run| run.m).collect();
    assert_eq!(done.len() as u64, TASKS);
    for host in &mut hosts {
        ends(host).await;
    }
}

/// S5, S6, S8, S13: a holder that was frozen beyond its lease finds its term over, and what it writes is refused.
#[tokio::test]
async fn a_holder_frozen_beyond_its_lease_has_lost() {
    let site = Site::new();
    let late = Task::new(1).then(Step::BlockUntil(site.path("go"))).then(Step::Check).then(Step::Send(1));
    send(&site, [late]).await;
    let mut holder = host(&site, "", LEASE).start();
    let begun = site.begun("single", 1).await;
    let mut survivor = host(&site, "", LEASE).start();
    survivor.started().await;
    let frozen = holder.freeze();
    until_true("another one has begun it", || site.runs("single").len() == 2).await;
    let again = site.runs("single")[1].clone();
    assert!(between(frozen, again.from) <= LEASE + SLACK);
    assert!(again.fence > begun.fence);
    site.allow("go");
    until_true("the other one has done it", || site.store().is_drained("single")).await;
    let taken = record(&site).await;
    holder.thaw();
    let pid = holder.pid();
    site.entry("it is told", |entry| entry.p == pid && entry.e == "lost").await;
    until_true("it sends nothing", || {
        site.entries().iter().any(|entry| entry.p == pid && entry.e == "not sent")
    })
    .await;
    let now = record(&site).await;
    assert_eq!((now.owner, now.fence), (taken.owner, taken.fence), "the frozen one changed nothing");
    ends(&mut survivor).await;
    ends(&mut holder).await;
}

/// S22, S28: all but one leave at once, in the midst of work: nothing overlaps, and the one that stays goes on at once,
/// although the lease would last for a minute.
#[tokio::test]
async fn alone_when_all_but_one_leave_the_last_goes_on_at_once() {
    let site = Site::new();
    let minute = Duration::from_secs(60);
    send(&site, (0..60).map(|n| Task::new(n).sleep(20))).await;
    let mut hosts: Vec<_> = (0..4).map(|_| host(&site, "", minute).start()).collect();
    for host in &hosts {
        host.started().await;
    }
    site.begun("single", 5).await;
    let holder = site.runs("single")[0].p;
    let stays = hosts.iter().position(|host| host.pid() != holder).unwrap();
    let mut last = hosts.remove(stays);
    for host in &mut hosts {
        host.terminate();
    }
    for host in &mut hosts {
        assert!(host.exit().await.success());
    }
    until_true("the one that stays has done the rest", || site.store().is_drained("single")).await;
    let runs = site.runs("single");
    assert_single(&runs);
    assert_eq!(runs.len(), 60, "each ran once");
    let gaps = runs.windows(2).filter(|pair| pair[0].p != pair[1].p);
    for pair in gaps {
        let took = between(pair[0].to.unwrap(), pair[1].from);
        assert!(took < Duration::from_secs(1), "a planned take-over took {took:?}");
    }
    ends(&mut last).await;
    assert_eq!(record(&site).await.ended, Some(bus::contract::Ended::Clean));
}

/// C6, S11, §5.11: the wall clock jumps there and back for ten leases, and nothing ever changes.
#[tokio::test]
async fn ten_leases_of_a_jumping_wall_clock_change_nothing() {
    let site = Site::new();
    let Some(clock) = WallClock::new(&site) else { return };
    let lease = Duration::from_secs(1);
    send(&site, [Task::new(0).wait_for(&site.path("go"))]).await;
    let setup = || clock.under(host(&site, "", lease));
    let mut holder = setup().start();
    site.begun("single", 0).await;
    let mut standby = setup().start();
    standby.started().await;
    let before = record(&site).await;
    for offset in [3600, -3600, 86_400, 0, -60] {
        clock.set(offset);
        stays("nobody else starts", lease * 2, || site.runs("single").len() == 1).await;
    }
    let after = record(&site).await;
    assert_eq!((after.owner, after.fence), (before.owner, before.fence));
    assert!(!site.entries().iter().any(|entry| entry.e == "lock.lost"));
    site.allow("go");
    until_true("it is done", || site.store().is_drained("single")).await;
    assert_single(&site.runs("single"));
    ends(&mut holder).await;
    ends(&mut standby).await;
}

/// S15, S26: hosts on two machines, which share the directory and no clock. The standby does not believe the holder dead
/// by its own clock or boot id, for many leases; when the holder is killed, it takes over after a lease without a change.
#[tokio::test]
async fn on_another_machine_a_lease_counts_by_what_changes() {
    let site = Site::new();
    let (Some(here), Some(there)) = (Machine::new(&site, "here"), Machine::new(&site, "there")) else {
        return;
    };
    send(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let mut holder = here.under(host(&site, FLEET, LEASE)).start();
    site.begun("single", 1).await;
    let mut standby = there.under(host(&site, FLEET, LEASE)).start();
    standby.started().await;
    stays("the holder keeps its lock", LEASE * 3, || site.runs("single").len() == 1).await;
    let killed = holder.kill();
    until_true("it has begun again", || site.runs("single").len() == 2).await;
    let took = between(killed, site.runs("single")[1].from);
    assert!(took >= LEASE.mul_f64(0.6) && took <= LEASE + SLACK, "it took {took:?}");
    site.allow("go");
    until_true("it is done", || site.store().is_drained("single")).await;
    assert_single(&site.runs("single"));

    // A clean end needs no clock at all.
    send(&site, [Task::new(2).wait_for(&site.path("end"))]).await;
    site.begun("single", 2).await;
    let mut third = here.under(host(&site, FLEET, Duration::from_secs(60))).start();
    third.started().await;
    site.allow("end");
    let stopped = standby.terminate();
    assert!(standby.exit().await.success());
    let taken = until("it takes over", || {
        site.entries().into_iter().find(|entry| entry.p == third.pid() && entry.e == "lock.acquired")
    })
    .await;
    assert!(between(stopped, taken.t) < SLACK, "it took {:?}", between(stopped, taken.t));
    ends(&mut third).await;
}

/// S26: two containers of one machine, each of which is shown a boot id of its own, has a boot clock of its own, or is told
/// nothing of either, share a directory. Nobody takes the lock that the other one holds; when that one dies, its lease is
/// waited out.
#[tokio::test]
async fn containers_with_clocks_of_their_own_never_take_each_others_locks() {
    for what in ["another boot id", "another boot clock", "no boot id"] {
        let site = Site::new();
        let machines = (Machine::new(&site, "container"), Machine::without_boot_id(&site));
        let ((Some(named), Some(nameless)), Some(ahead)) = (machines, Ahead::by(24 * 3600)) else { return };
        let inside = |setup| match what {
            "another boot id" => named.under(setup),
            "another boot clock" => ahead.under(setup),
            _ => nameless.under(setup),
        };
        send(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
        let holder = host(&site, "", LEASE);
        let mut holder = if what == "no boot id" { inside(holder) } else { holder }.start();
        site.begun("single", 1).await;
        let mut standby = inside(host(&site, "", LEASE)).start();
        standby.started().await;
        stays("the holder keeps its lock", LEASE * 3, || site.runs("single").len() == 1).await;
        let killed = holder.kill();
        until_true("it has begun again", || site.runs("single").len() == 2).await;
        let took = between(killed, site.runs("single")[1].from);
        assert!(took >= LEASE.mul_f64(0.6) && took <= LEASE + SLACK, "it took {took:?}");
        site.allow("go");
        until_true("it is done", || site.store().is_drained("single")).await;
        assert_single(&site.runs("single"));
        ends(&mut standby).await;
    }
}

/// S15: a record from before a restart of the machine, whose clock had shown much more by then, is watched for a lease by
/// whoever finds it, and then is free.
#[tokio::test]
async fn a_record_from_before_a_restart_is_watched_for_a_lease() {
    let site = Site::new();
    let Some(before) = Machine::new(&site, "before") else { return };
    let before = before.up_longer_by(30 * 24 * 3600);
    send(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let mut dead = before.under(host(&site, "", LEASE)).start();
    let former = site.begun("single", 1).await;
    let killed = dead.kill();
    let mut next = host(&site, "", LEASE).start();
    until_true("it has begun again", || site.runs("single").len() == 2).await;
    let again = site.runs("single")[1].clone();
    let took = between(killed, again.from);
    assert!(took >= LEASE.mul_f64(0.9) && took <= LEASE + SLACK, "it took {took:?}");
    assert!(again.fence > former.fence);
    site.allow("go");
    until_true("it is done", || site.store().is_drained("single")).await;
    assert_single(&site.runs("single"));
    ends(&mut next).await;
}

/// M12: the file system hangs for the file of one lock, for many leases. Its holder has lost in time; another singleton of
/// the same host notices nothing, and no call hangs beside the first. When it goes on, so does everything.
#[tokio::test]
async fn a_file_system_that_hangs_for_one_lock_costs_the_others_nothing() {
    let site = Site::new();
    let Some(hang) = Hang::new(&site, "queue.single.lock") else { return };
    send(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let producer = site.producer().await;
    producer.bus().send(Ordered(Task::new(2).wait_for(&site.path("ordered")))).await.unwrap();
    producer.close().await;
    let mut actor = hang.under(host(&site, "", LEASE).arg("ordered")).start();
    let hangs = site.begun("single", 1).await.fence;
    let goes_on = site.begun("ordered", 2).await.fence;
    assert_ne!(hangs, goes_on);
    hang.begin();
    let lost = |fence| site.entries().iter().any(|entry| entry.e == "lock.lost" && entry.fence == fence);
    until_true("the lock of the file that hangs is lost", || lost(hangs)).await;
    stays("the other one is kept", LEASE * 3, || !lost(goes_on)).await;
    assert_eq!(site.runs("ordered").len(), 1);
    assert_eq!(hang.calls(), 1, "what was asked meanwhile has not been begun");
    let threads = |pid: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.trim() == "bus-file-locks").count()
    };
    assert!(threads(actor.pid()) <= 4, "{} threads", threads(actor.pid()));
    hang.end();
    site.allow("go");
    site.allow("ordered");
    until_true("all is done", || site.store().is_drained("single") && site.store().is_drained("ordered"))
        .await;
    assert_single(&site.runs("single"));
    assert_eq!(site.runs("ordered").len(), 1, "its term went on");
    ends(&mut actor).await;
}

/// Where there are no hard links (SMB, Azure Files), files get their names otherwise, and of two hosts one has the lock.
#[tokio::test]
async fn without_hard_links_there_is_one_holder_all_the_same() {
    let site = Site::new();
    let Some(links) = NoLinks::new(&site) else { return };
    send(&site, (0..20).map(|n| Task::new(n).sleep(10))).await;
    let mut hosts: Vec<_> = (0..3).map(|_| links.under(host(&site, "", LEASE)).start()).collect();
    until_true("all is done", || site.store().is_drained("single")).await;
    assert_single(&site.runs("single"));
    assert_eq!(site.runs("single").len(), 20, "each ran once");
    assert!(links.refused() >= 2, "the directory's mark and the lock's file");
    let left = std::fs::read_dir(site.path("locks")).unwrap().count();
    assert_eq!(left, 2, "nothing is left half made");
    for host in &mut hosts {
        ends(host).await;
    }
}
