//! Locks while somebody sets the server's clock. The function that all statements ask for the time is replaced by one
//! that is wrong. Scenarios S26, S27.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::clock::Clock;
use bus::contract::{Ended, Lease, LockId, LockManager, OpenOptions, Owner, Renewal, Scheme, StoreUrl};
use bus_tests::postgres::{Database, available};
use bus_tests::wait::PATIENCE;

/// Of a lock that must not run out: longer than all that is done meanwhile takes on a busy machine.
const LEASE: Duration = Duration::from_secs(60);
/// Of one whose end is awaited.
const BRIEF: Duration = Duration::from_secs(2);

async fn open(database: &Database) -> Arc<dyn LockManager> {
    let url = StoreUrl::parse(&database.url()).unwrap();
    let open = Scheme::find(url.scheme()).unwrap().locks.unwrap();
    let locks = open(&url, &OpenOptions::new(Clock::system())).await.unwrap();
    locks.initialize().await.unwrap();
    locks
}

/// Sets the store's clock ahead or back.
async fn set_clock(database: &Database, by: &str) {
    let wrong = format!(
        "CREATE OR REPLACE FUNCTION bus.clock_us() RETURNS bigint LANGUAGE sql VOLATILE
         AS 'SELECT (extract(epoch FROM clock_timestamp() + interval ''{by}'') * 1000000)::bigint'"
    );
    database.client().await.batch_execute(&wrong).await.unwrap();
}

async fn try_take(locks: &Arc<dyn LockManager>, id: &LockId) -> Option<Box<dyn Lease>> {
    locks.try_lock(id, LEASE, Owner::fresh()).await.unwrap()
}

/// Takes it for a brief lease, as soon as it is free. A call about such a lock has half a second, which may be too little for
/// a busy machine.
async fn take_briefly(locks: &Arc<dyn LockManager>, id: &LockId) -> Box<dyn Lease> {
    let began = Instant::now();
    loop {
        if let Ok(Some(taken)) = locks.try_lock(id, BRIEF, Owner::fresh()).await {
            return taken;
        }
        assert!(began.elapsed() < PATIENCE, "it is never free");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_ahead_takes_a_lock_from_nobody() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let (holder, candidate) = (open(&database).await, open(&database).await);
    let id = LockId::from("queue/ahead");
    let lease = try_take(&holder, &id).await.unwrap();
    assert!(try_take(&candidate, &id).await.is_none());
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
    // The candidate has seen a renewal, and goes by what it has seen.
    assert!(try_take(&candidate, &id).await.is_none());
    set_clock(&database, "1 hour").await;
    assert!(try_take(&candidate, &id).await.is_none(), "the candidate went by the server's clock alone");
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held, "the holder went by the server's clock alone");
    assert!(try_take(&candidate, &id).await.is_none());
}

/// S26: one look at a living record is enough, before the clock is set ahead and before any renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_ahead_after_a_single_look_takes_a_lock_from_nobody() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let (holder, candidate) = (open(&database).await, open(&database).await);
    let id = LockId::from("queue/one-look");
    let lease = try_take(&holder, &id).await.unwrap();
    assert!(try_take(&candidate, &id).await.is_none());
    set_clock(&database, "1 hour").await;
    assert!(try_take(&candidate, &id).await.is_none(), "the candidate went by the server's clock alone");
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
    // A released one is taken at once, whatever the clocks say.
    lease.release(Ended::Clean).await.unwrap();
    let next = try_take(&candidate, &id).await.expect("it was released");
    assert!(next.fence() > lease.fence());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_back_keeps_no_dead_lock_alive() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let (holder, candidate) = (open(&database).await, open(&database).await);
    let id = LockId::from("queue/back");
    let lost = take_briefly(&holder, &id).await;
    set_clock(&database, "-1 hour").await;
    let began = Instant::now();
    let taken = take_briefly(&candidate, &id).await;
    assert!(began.elapsed() >= BRIEF, "it was taken {:?} after it was first seen", began.elapsed());
    assert!(taken.fence() > lost.fence(), "the fence fell with the clock");
    assert_eq!(lost.renew().await.unwrap(), Renewal::Lost);
}

/// S27: where the record says by the server's clock that it is dead, a new candidate does not wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_record_costs_a_new_candidate_nothing() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let id = LockId::from("queue/dead");
    let holder = open(&database).await;
    take_briefly(&holder, &id).await;
    holder.close().await;
    tokio::time::sleep(BRIEF).await;
    assert!(try_take(&open(&database).await, &id).await.is_some());
}
