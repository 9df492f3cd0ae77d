//! Processes that are stopped in the midst of it, and go on much later.

use std::time::Duration;

use bus_tests::runs::assert_single;
use bus_tests::site::{Process, Site};
use bus_tests::task::{Single, Step, Task};
use bus_tests::wait::{in_time, stays, until_true};

use super::{actor, actor_with_lease, seconds, send_plain, send_single};

/// The lock's lease, in seconds.
const LEASE: u64 = 2;

/// S6, S8, S13: a holder that was frozen beyond its lease is told by its term, and neither what it sends nor its verdict
/// is taken: another one has done the work meanwhile.
#[tokio::test]
async fn a_thawed_holder_finds_its_term_over_and_its_writes_refused() {
    let site = Site::new();
    let late = Task::new(1).then(Step::BlockUntil(site.path("go"))).then(Step::Check).then(Step::Send(1));
    send_single(&site, [late]).await;
    let mut holder = actor_with_lease(&site, &["single"], LEASE).start();
    let begun = site.begun("single", 1).await;
    let survivor = actor_with_lease(&site, &["single"], LEASE).start();
    survivor.started().await;

    let frozen = holder.freeze();
    until_true("another one has begun it", || site.runs("single").len() == 2).await;
    let again = site.runs("single")[1].clone();
    assert!(seconds(frozen, again.from) <= LEASE as f64 + 2.0, "it took {} s", seconds(frozen, again.from));
    assert!(again.fence > begun.fence);
    site.allow("go");
    until_true("the other one has done it", || site.store().is_drained("single")).await;

    holder.thaw();
    let pid = holder.pid();
    let refused =
        site.entry("its verdict is refused", |entry| entry.e == "settle.refused" && entry.p == pid).await;
    assert_eq!(refused.fence, begun.fence);
    let of_holder: Vec<_> = site.entries().into_iter().filter(|entry| entry.p == pid).collect();
    assert!(of_holder.iter().any(|entry| entry.e == "lost"), "term.check() said so: {of_holder:#?}");
    let not_sent = of_holder.iter().find(|entry| entry.e == "not sent").expect("its send was refused");
    assert_eq!(not_sent.say.as_deref(), Some("TermLost"));
    let counts = site.store().counts("out");
    assert_eq!(counts.ready, 1, "what the other one sent, and nothing else");

    // S13, S17: it is a candidate again, and can have the lock under a new fence.
    drop(survivor);
    send_single(&site, [Task::new(2)]).await;
    let third = site.begun("single", 2).await;
    assert_eq!(third.p, pid);
    assert!(third.fence > again.fence);
}

/// M4, M5: a plain process that was frozen beyond its claim's lease neither settles nor keeps alive what another one has
/// claimed since.
#[tokio::test]
async fn a_thawed_process_does_not_touch_the_claims_of_its_successor() {
    let site = Site::new();
    let short = "[processors.plain]\nlease = \"1s\"\n";
    let task = Task::new(1).then(Step::BlockUntil(site.path("go"))).wait_for(&site.path("go on"));
    send_plain(&site, [task]).await;
    let mut frozen = actor(&site, &["plain"]).config(short).start();
    site.begun("plain", 1).await;
    frozen.freeze();
    let mut other = actor(&site, &["plain"]).config(short).start();
    let pid = other.pid();
    until_true("another process has it", || site.runs("plain").iter().any(|run| run.p == pid)).await;
    let again = site.runs("plain").into_iter().find(|run| run.p == pid).expect("it has begun");
    assert_eq!(again.count, 2);

    // The thawed one comes to its end while the other is still at it.
    site.allow("go");
    frozen.thaw();
    let store = site.store();
    let thawed = frozen.pid();
    stays("the other one's claim stands", Duration::from_secs(2), || store.counts("plain").claimed == 1)
        .await;
    // Once the other one is killed its claim runs out, and is not kept alive by the thawed one.
    other.kill();
    let third = actor(&site, &["plain"]).config(short).start();
    site.allow("go on");
    until_true("it is done", || store.is_drained("plain")).await;
    site.entry("the thawed one's verdict is refused", |entry| {
        entry.e == "settle.refused" && entry.p == thawed
    })
    .await;
    assert_eq!(store.counts("plain").dead, 0);
    drop(third);
}

/// A holder that has frozen itself in the middle of a commit, some way into ten messages.
async fn frozen_inside_a_commit(site: &Site) -> Process<'_> {
    send_single(site, (0..10).map(|n| Task::new(n).sleep(10))).await;
    let trap = site.path("trap");
    let setup = actor_with_lease(site, &["single"], LEASE);
    let holder = setup.env("BUS_TEST_TRAP", trap.display().to_string()).start();
    site.begun("single", 2).await;
    site.allow("trap");
    until_true("it has frozen itself", || !trap.exists()).await;
    holder
}

/// S5, for SQLite: a process that was frozen in the middle of a commit, with the file's lock in its hand. The others
/// wait, and go on as soon as it does; nothing overlaps and nothing is lost.
#[tokio::test]
async fn a_process_frozen_inside_a_commit_holds_the_others_up_and_no_more() {
    let site = Site::new();
    let mut holder = frozen_inside_a_commit(&site).await;
    let other = actor_with_lease(&site, &["single"], LEASE).start();
    let store = site.store();
    let before = store.counts("single");
    // Longer than the lease: nobody can write, so nobody takes over.
    let pid = holder.pid();
    stays("nobody else runs anything", Duration::from_secs(LEASE + 1), || {
        site.runs("single").iter().all(|run| run.p == pid)
    })
    .await;
    assert_eq!(store.counts("single"), before);
    holder.thaw();
    until_true("all is done", || store.is_drained("single")).await;
    assert_eq!(store.counts("single").dead, 0);
    let mut done: Vec<u64> = site.runs("single").iter().map(|run| run.m).collect();
    done.sort_unstable();
    done.dedup();
    assert_eq!(done, (0..10).collect::<Vec<_>>());
    assert_single(&site.runs("single"));
    drop(other);
}

/// S5: the same, but the frozen one is killed: the lock of the file goes with it.
#[tokio::test]
async fn a_process_killed_inside_a_commit_lets_the_others_go_on() {
    let site = Site::new();
    let mut holder = frozen_inside_a_commit(&site).await;
    holder.kill();
    let survivor = actor_with_lease(&site, &["single"], LEASE).start();
    let producer = in_time("the file can be written to", site.producer()).await;
    in_time("sent", async { producer.bus().send(Single(Task::new(10))).await }).await.expect("sent");
    let store = site.store();
    until_true("all is done", || store.is_drained("single")).await;
    assert_eq!(store.counts("single").dead, 0);
    assert_single(&site.runs("single"));
    drop(survivor);
}
