//! A server whose clock is set, forward and back, while locks are held and messages are claimed and delayed.

use std::time::{Duration, Instant};

use bus::contract::{Ended, LockId, LockManager, Owner, Renewal};
use bus_tests::nats::Nats;
use bus_tests::shim::GoClock;

use crate::store::{PATIENCE, PREFIX, open_locks, server};

const LEASE: Duration = Duration::from_secs(100);
const HOUR: i64 = 3600;
/// For so long a candidate goes by what it has read off the server's clock.
const READ_ANEW: Duration = Duration::from_secs(31);

/// A server with a clock that can be set; `None` where there is no such thing, which has been said then.
fn server_with_a_clock() -> Option<(Nats, GoClock)> {
    drop(server()?);
    let clock = GoClock::new()?;
    Some((Nats::start_by(&clock), clock))
}

async fn take(locks: &dyn LockManager, lease: Duration) -> Option<Box<dyn bus::contract::Lease>> {
    locks.try_lock(&LockId::from("queue/it"), lease, Owner::fresh()).await.unwrap()
}

/// S26: the server's clock is set forward by an hour. A candidate that has seen a renewal less than a lease ago, by its own
/// clock, does not take the lock, before the holder's next renewal nor after it; and has it when it is given back.
#[tokio::test]
async fn a_clock_set_forward_takes_no_lock_from_its_holder() {
    let Some((server, clock)) = server_with_a_clock() else { return };
    let url = server.url(PREFIX);
    let (one, two) = (open_locks(&url).await.unwrap(), open_locks(&url).await.unwrap());
    let holder = take(&*one, LEASE).await.expect("it is free");
    assert!(take(&*two, LEASE).await.is_none());
    clock.set(HOUR);
    assert!(take(&*two, LEASE).await.is_none(), "the clock was not looked at again");
    // The passing of time is what is tested.
    tokio::time::sleep(READ_ANEW).await;
    assert!(take(&*two, LEASE).await.is_none(), "seen less than a lease ago");
    assert_eq!(holder.renew().await.unwrap(), Renewal::Held);
    assert!(take(&*two, LEASE).await.is_none(), "renewed since");
    // Renewed, and set forward again, between two looks.
    assert_eq!(holder.renew().await.unwrap(), Renewal::Held);
    clock.set(2 * HOUR);
    assert!(take(&*two, LEASE).await.is_none(), "renewed since the last look");
    let fence = holder.fence();
    holder.release(Ended::Clean).await.unwrap();
    let last = take(&*one, LEASE).await.expect("it was given back");
    clock.set(3 * HOUR);
    let stranger = open_locks(&url).await.unwrap();
    let taken = take(&*stranger, LEASE).await.expect("who has watched nothing goes by the server's clock");
    assert!(taken.fence() > last.fence() && last.fence() > fence);
    assert_eq!(last.renew().await.unwrap(), Renewal::Lost);
}

/// S15, S26: the server's clock is set back by an hour, and the holder is dead. Who has seen it alive waits for its lease, and
/// not for an hour; the fence grows all the same.
#[tokio::test]
async fn a_clock_set_back_keeps_no_dead_lock() {
    let brief = Duration::from_secs(2);
    let Some((server, clock)) = server_with_a_clock() else { return };
    let url = server.url(PREFIX);
    let (one, two) = (open_locks(&url).await.unwrap(), open_locks(&url).await.unwrap());
    let dead = take(&*one, brief).await.expect("it is free");
    assert!(take(&*two, brief).await.is_none());
    clock.set(-HOUR);
    let begun = Instant::now();
    let next = loop {
        if let Some(next) = take(&*two, brief).await {
            break next;
        }
        assert!(begun.elapsed() < PATIENCE, "a dead holder's lock is still held");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(next.fence() > dead.fence());
    assert_eq!(dead.renew().await.unwrap(), Renewal::Lost);
}
