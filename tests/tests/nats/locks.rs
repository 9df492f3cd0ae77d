//! The lock manager: fences, records that look as clocks make them look, servers that do not answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::contract::{Ended, Lease, LockId, LockManager, Owner, Renewal};
use bus_tests::nats::Nats;
use serde_json::{Value, json};

use crate::store::{PATIENCE, PREFIX, open_locks, server};

/// A call may take a tenth of it.
const LEASE: Duration = Duration::from_secs(100);
const KEY: &str = "$KV.test-locks.queue/it";
const BUCKET: &str = "KV_test-locks";

struct Locks {
    server: Nats,
    one: Arc<dyn LockManager>,
    two: Arc<dyn LockManager>,
    id: LockId,
}

impl Locks {
    async fn new() -> Option<Self> {
        let server = server()?;
        let url = server.url(PREFIX);
        let (one, two) = (open_locks(&url).await.unwrap(), open_locks(&url).await.unwrap());
        one.initialize().await.unwrap();
        Some(Locks { server, one, two, id: LockId::from("queue/it") })
    }

    async fn take(&self, manager: &Arc<dyn LockManager>) -> Option<Box<dyn Lease>> {
        self.take_for(manager, LEASE).await
    }

    async fn take_for(&self, manager: &Arc<dyn LockManager>, lease: Duration) -> Option<Box<dyn Lease>> {
        manager.try_lock(&self.id, lease, Owner::fresh()).await.unwrap()
    }

    /// Stores the record of a lease as if it were held for that long from now, by the server's clock.
    async fn store(&self, lease: &dyn Lease, fence: u64, held: Duration, ended: Option<&str>) {
        let lock_lease = u64::try_from(lease.grant().lock_lease.as_micros()).unwrap();
        let held = u64::try_from(held.as_micros()).unwrap();
        let record = json!({
            "owner": lease.lease_id().to_string(), "fence": fence, "lease": lock_lease, "held": held,
            "ended": ended, "reason": null, "note": null,
        });
        let client = self.server.client().await;
        let stored = client.request(KEY, record.to_string().into()).await.unwrap();
        assert!(std::str::from_utf8(&stored.payload).unwrap().contains(BUCKET), "{stored:?}");
    }
}

/// S7: the fence grows when a record was deleted, when all of them were, and when the bucket itself was; and where it is
/// far ahead of the clock.
#[tokio::test]
async fn the_fence_grows_whatever_was_lost() {
    let Some(locks) = Locks::new().await else { return };
    let mut before = locks.take(&locks.one).await.unwrap();
    for lost in ["key", "records", "bucket"] {
        match lost {
            "key" => {
                let mut headers = async_nats::HeaderMap::new();
                headers.insert("KV-Operation", "DEL");
                let client = locks.server.client().await;
                client.request_with_headers(KEY, headers, "".into()).await.unwrap();
            }
            "records" => drop(locks.server.ask(&format!("STREAM.PURGE.{BUCKET}"), &Value::Null).await),
            _ => drop(locks.server.ask(&format!("STREAM.DELETE.{BUCKET}"), &Value::Null).await),
        }
        assert_eq!(before.renew().await.unwrap(), Renewal::Lost, "{lost}");
        let after = locks.take(&locks.two).await.expect(lost);
        assert!(after.fence() > before.fence(), "{lost}");
        before = after;
    }
    let large = (1_u64 << 62) + 1;
    locks.store(&*before, large, LEASE, Some("clean")).await;
    assert_eq!(locks.take(&locks.two).await.unwrap().fence().get(), large + 1);
}

/// S26: by the server's clock the record has run out. Who has watched the holder renew does not believe it, and the
/// holder goes on; who has watched nothing does not wait (S27).
#[tokio::test]
async fn a_record_that_looks_dead_is_not_taken_by_who_has_seen_it_alive() {
    let Some(locks) = Locks::new().await else { return };
    let holder = locks.take(&locks.one).await.unwrap();
    assert!(locks.take(&locks.two).await.is_none());
    locks.store(&*holder, holder.fence().get(), Duration::ZERO, None).await;
    assert!(locks.take(&locks.two).await.is_none(), "seen less than a lease ago");
    assert_eq!(holder.renew().await.unwrap(), Renewal::Held);
    assert!(locks.take(&locks.two).await.is_none());

    locks.store(&*holder, holder.fence().get(), Duration::ZERO, None).await;
    let stranger = open_locks(&locks.server.url(PREFIX)).await.unwrap();
    let begun = Instant::now();
    assert!(locks.take(&stranger).await.unwrap().fence() > holder.fence());
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(holder.renew().await.unwrap(), Renewal::Lost);
}

/// S15: a dead holder keeps nobody out for longer than its lease, and its fence is outdone.
#[tokio::test]
async fn a_dead_holder_keeps_nobody_out_for_longer_than_its_lease() {
    let Some(locks) = Locks::new().await else { return };
    let brief = Duration::from_secs(1);
    let dead = locks.take_for(&locks.one, brief).await.unwrap();
    let begun = Instant::now();
    let next = loop {
        if let Some(next) = locks.take_for(&locks.two, brief).await {
            break next;
        }
        assert!(begun.elapsed() < PATIENCE, "a dead holder's lock is still held");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(next.fence() > dead.fence());
    assert_eq!(dead.renew().await.unwrap(), Renewal::Lost);
}

/// S28: a planned take-over does not wait for a poll, and a release between asking and watching is not missed.
#[tokio::test]
async fn a_watch_tells_of_a_release() {
    let Some(locks) = Locks::new().await else { return };
    for released_before_watching in [false, true] {
        let lease = locks.take(&locks.one).await.unwrap();
        assert!(locks.take(&locks.two).await.is_none());
        let released = Instant::now();
        if released_before_watching {
            lease.release(Ended::Clean).await.unwrap();
            tokio::time::timeout(PATIENCE, locks.two.watch(&locks.id)).await.unwrap();
        } else {
            let release = lease.release(Ended::Clean);
            let both = async { tokio::join!(locks.two.watch(&locks.id), release).1 };
            tokio::time::timeout(PATIENCE, both).await.unwrap().unwrap();
        }
        assert!(released.elapsed() < Duration::from_secs(1), "told after {:?}", released.elapsed());
        locks.take(&locks.two).await.unwrap().release(Ended::Clean).await.unwrap();
    }
}

/// S8, S13: a renewal and a release that were under way when another took the lock change nothing, whenever they arrive:
/// each names the record that it was made for.
#[tokio::test]
async fn a_late_write_of_a_former_holder_is_refused_by_the_server() {
    let Some(locks) = Locks::new().await else { return };
    let former = locks.take(&locks.one).await.unwrap();
    former.release(Ended::Clean).await.unwrap();
    let holder = locks.take(&locks.two).await.unwrap();
    let record = locks.one.inspect(&locks.id).await.unwrap().unwrap();
    assert_eq!(former.renew().await.unwrap(), Renewal::Lost);
    former.release(Ended::Cut("late".into())).await.unwrap();
    let after = locks.one.inspect(&locks.id).await.unwrap().unwrap();
    assert_eq!((record.owner, record.fence, after.ended), (holder.lease_id(), holder.fence(), None));
    assert_eq!(holder.renew().await.unwrap(), Renewal::Held);
}

/// M12: calls end in time though the server is silent, and say that nothing is known; then they work again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_ends_in_time_though_the_server_is_silent() {
    let Some(locks) = Locks::new().await else { return };
    let lease = locks.take_for(&locks.one, Duration::from_secs(20)).await.unwrap();
    locks.server.freeze();
    for _ in 0..2 {
        let asked = Instant::now();
        let silent = lease.renew().await.unwrap_err();
        assert!(silent.is_transient(), "{silent:?}");
        assert!(asked.elapsed() < Duration::from_secs(4), "it took {:?}", asked.elapsed());
    }
    locks.server.thaw();
    let begun = Instant::now();
    while lease.renew().await.ok() != Some(Renewal::Held) {
        assert!(begun.elapsed() < Duration::from_secs(5), "it is not renewed again");
    }
}

/// The time that records of locks are compared with is told by the stream that they lie in: in a cluster another one's leader
/// has a clock of its own.
#[tokio::test]
async fn the_locks_time_is_that_of_their_own_stream() {
    let Some(locks) = Locks::new().await else { return };
    let _lease = locks.take(&locks.one).await.unwrap();
    assert!(locks.take(&locks.two).await.is_none());
    let streams = locks.server.ask("STREAM.NAMES", &Value::Null).await;
    assert_eq!(streams["streams"], json!([BUCKET]), "{streams}");
    let ids: Vec<_> = locks.two.list("").await.unwrap().into_iter().map(|record| record.id).collect();
    assert_eq!(ids, [LockId::from("queue/it")], "the clock is no lock");
}
