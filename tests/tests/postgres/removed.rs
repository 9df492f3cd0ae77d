//! Locks whose records somebody has removed. Scenarios S7, M11.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::clock::Clock;
use bus::contract::{
    Ended, Fence, FenceClaim, Lease, LockId, LockManager, OpenOptions, Owner, Raised, Renewal, Scheme,
    StoreUrl,
};
use bus_tests::by_hand::endpoint;
use bus_tests::postgres::{Database, Server, available};
use bus_tests::runs::assert_single;
use bus_tests::site::Site;
use bus_tests::task::{Single, Task};
use bus_tests::wait::{PATIENCE, until_true};

use crate::heavy_sessions::host;

const LEASE: Duration = Duration::from_secs(2);
/// What a look costs that comes late.
const LATE: Duration = Duration::from_secs(5);

async fn open(database: &Database) -> Arc<dyn LockManager> {
    let url = StoreUrl::parse(&database.url()).unwrap();
    let open = Scheme::find(url.scheme()).unwrap().locks.unwrap();
    open(&url, &OpenOptions::new(Clock::system())).await.unwrap()
}

async fn try_take(locks: &Arc<dyn LockManager>, id: &LockId) -> Option<Box<dyn Lease>> {
    // Tables that are missing are made again, and then it is asked again.
    let began = Instant::now();
    loop {
        match locks.try_lock(id, LEASE, Owner::fresh()).await {
            Ok(taken) => return taken,
            Err(e) => assert!(e.is_transient() && began.elapsed() < PATIENCE, "{e:?}"),
        }
    }
}

/// S7: the holder does not know yet that its record is gone: who has seen it held leaves it alone for a lease, and then has a
/// higher fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_whose_record_was_removed_is_taken_after_a_lease_and_with_a_higher_fence() {
    if !available() {
        return;
    }
    for removal in
        ["DELETE FROM bus.lock", "TRUNCATE bus.lock", "DROP TABLE bus.lock", "DROP SCHEMA bus CASCADE"]
    {
        let database = Database::create().await;
        let (holder, candidate) = (open(&database).await, open(&database).await);
        let id = LockId::from("queue/removed");
        let lost = try_take(&holder, &id).await.unwrap();
        assert!(try_take(&candidate, &id).await.is_none());
        let client = database.client().await;
        client.batch_execute(removal).await.unwrap();
        let removed = Instant::now();
        let next = loop {
            if let Some(next) = try_take(&candidate, &id).await {
                break next;
            }
            assert!(removed.elapsed() < LEASE + LATE, "{removal}: it is never free");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert!(removed.elapsed() >= LEASE, "{removal}: taken after {:?}", removed.elapsed());
        assert!(next.fence() > lost.fence(), "{removal}: the fence fell");
        assert_eq!(lost.renew().await.unwrap(), Renewal::Lost, "{removal}");
        // What was released is nobody's: that it is gone as well keeps nobody waiting.
        next.release(Ended::Clean).await.unwrap();
        let again = try_take(&holder, &id).await.expect("it was released");
        again.release(Ended::Clean).await.unwrap();
        assert!(candidate.inspect(&id).await.unwrap().is_some());
        client.batch_execute("DELETE FROM bus.lock").await.unwrap();
        assert!(try_take(&open(&database).await, &id).await.is_some(), "{removal}: nobody has it");
        holder.close().await;
        candidate.close().await;
    }
}

/// S7: of two who ask at the same moment one is given the lock; the other one has seen it held, whatever it was told by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_came_second_leaves_a_removed_lock_alone() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let (one, other) = (open(&database).await, open(&database).await);
    let client = database.client().await;
    for round in 0..40 {
        let id = LockId::from(format!("queue/raced-{round}").as_str());
        let (first, second) = tokio::join!(try_take(&one, &id), try_take(&other, &id));
        assert_ne!(first.is_some(), second.is_some());
        let late = if first.is_some() { &other } else { &one };
        client.batch_execute("DELETE FROM bus.lock").await.unwrap();
        assert!(try_take(late, &id).await.is_none(), "round {round}: its holder does not know yet");
    }
}

/// S7: also where it is far ahead of the clock: the record tells, and without it the messages' row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_that_is_ahead_of_the_clock_grows() {
    const FAR: u64 = (1 << 62) + 1;
    if !available() {
        return;
    }
    let database = Database::create().await;
    let locks = open(&database).await;
    let id = LockId::from("queue/far");
    let first = try_take(&locks, &id).await.unwrap();
    first.release(Ended::Clean).await.unwrap();
    let client = database.client().await;
    client.execute("UPDATE bus.lock SET fence = $1", &[&i64::try_from(FAR).unwrap()]).await.unwrap();
    let second = try_take(&locks, &id).await.unwrap();
    assert_eq!(second.fence().get(), FAR + 1);

    let transport = crate::open(&database.url()).await;
    let queue = endpoint("far");
    let fencing = transport.capabilities().fencing.unwrap();
    let raise = async |fence: Fence| {
        let claim = FenceClaim::new(Arc::clone(&queue), &locks.guarantees().authority, &id, fence, LEASE);
        fencing.raise(claim).await.unwrap()
    };
    assert_eq!(raise(second.fence()).await, Raised::Raised);
    client.batch_execute("DELETE FROM bus.lock").await.unwrap();
    let third = try_take(&open(&database).await, &id).await.unwrap();
    assert!(third.fence() > second.fence(), "the fence fell to {}", third.fence());
    assert_eq!(raise(third.fence()).await, Raised::Raised, "the singleton could never start again");
    transport.close().await;
}

/// M11: all tables are removed while a singleton's message is in flight and another host stands by. It goes on by itself, and
/// its runs never overlap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_singleton_whose_tables_were_removed_goes_on_and_never_overlaps() {
    if !available() {
        return;
    }
    let server = Server::start().await;
    let url = format!("{}?timeout=2", server.url());
    let site = Site::new();
    let mut hosts = [host(&site, &url).arg("single").start(), host(&site, &url).arg("single").start()];
    for host in &hosts {
        host.started().await;
    }
    let producer = crate::stream::producer(&url).await;
    producer.bus().send(Single(Task::new(0).wait_for(&site.path("never")))).await.unwrap();
    site.begun("single", 0).await;
    site.entry("the other one stands by", |entry| entry.e == "lock.standby").await;
    let client = server.client().await;
    client.batch_execute("DROP SCHEMA bus CASCADE").await.unwrap();
    let began = Instant::now();
    for number in 1..=5 {
        // What is sent to tables that are removed just now may fail.
        while let Err(e) = producer.bus().send(Single(Task::new(number).sleep(20))).await {
            assert!(e.is_transient() && began.elapsed() < PATIENCE, "{e:?}");
        }
    }
    let ended = |task| move |run: &bus_tests::runs::Run| run.m == task && run.how.as_deref() == Some("end");
    until_true("what was sent afterwards is done", || {
        let runs = site.runs("single");
        (1..=5).all(|task| runs.iter().any(ended(task)))
    })
    .await;
    assert_single(&site.runs("single"));
    producer.close().await;
    for host in &mut hosts {
        host.terminate();
        assert!(host.exit().await.success());
    }
}
