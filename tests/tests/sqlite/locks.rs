//! The lock manager.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::ErrorKind;
use bus::contract::{Ended, Lease, LockId, LockManager, Owner, Renewal};

use crate::store::{PATIENCE, another_clock, open, open_locks};

/// A call may take a tenth of it, and the disk of a busy machine is slow.
const LOCK_LEASE: Duration = Duration::from_secs(300);

struct Locks {
    directory: tempfile::TempDir,
    one: Arc<dyn LockManager>,
    two: Arc<dyn LockManager>,
    id: LockId,
}

impl Locks {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("bus.db");
        let (one, two) = (open_locks(&file).await.unwrap(), open_locks(&file).await.unwrap());
        one.initialize().await.unwrap();
        two.initialize().await.unwrap();
        Locks { directory, one, two, id: LockId::from("queue/it") }
    }

    fn sql(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.directory.path().join("bus.db")).unwrap()
    }

    async fn take(&self, manager: &Arc<dyn LockManager>) -> Option<Box<dyn Lease>> {
        manager.try_lock(&self.id, LOCK_LEASE, Owner::fresh()).await.unwrap()
    }
}

#[tokio::test]
async fn held_by_one_at_a_time_with_a_growing_fence() {
    let locks = Locks::new().await;
    let first = locks.take(&locks.one).await.unwrap();
    assert!(locks.take(&locks.two).await.is_none());
    assert_eq!(first.renew().await.unwrap(), Renewal::Held);
    first.release(Ended::Clean).await.unwrap();
    assert_eq!(first.renew().await.unwrap(), Renewal::Lost);
    let second = locks.take(&locks.two).await.unwrap();
    assert!(second.fence() > first.fence());
    // A late release by the former holder frees nothing (S8).
    first.release(Ended::Clean).await.unwrap();
    assert_eq!(second.renew().await.unwrap(), Renewal::Held);
}

/// S7: also when the file was brought back from a backup.
#[tokio::test]
async fn the_fence_grows_across_a_restore() {
    let locks = Locks::new().await;
    let before = locks.take(&locks.one).await.unwrap();
    before.release(Ended::Clean).await.unwrap();
    locks.sql().execute("DELETE FROM bus_lock", []).unwrap();
    assert!(locks.take(&locks.two).await.unwrap().fence() > before.fence());
    // And where the clock has gone back instead.
    locks.sql().execute("UPDATE bus_lock SET fence = 1 << 60, ended = 'clean'", []).unwrap();
    assert_eq!(locks.take(&locks.two).await.unwrap().fence().get(), (1 << 60) + 1);
}

#[tokio::test]
async fn asked_again_by_the_same_owner_it_is_the_same_term() {
    let locks = Locks::new().await;
    let owner = Owner::fresh();
    let take = || locks.one.try_lock(&locks.id, LOCK_LEASE, owner);
    let (first, again) = (take().await.unwrap().unwrap(), take().await.unwrap().unwrap());
    assert_eq!((first.fence(), first.lease_id()), (again.fence(), owner));
    locks.two.give_up(&locks.id, Owner::fresh()).await.unwrap();
    assert!(locks.take(&locks.two).await.is_none(), "someone else's giving up frees nothing");
    locks.one.give_up(&locks.id, owner).await.unwrap();
    assert!(locks.take(&locks.two).await.is_some());
}

#[tokio::test]
async fn a_cut_frees_nothing_early_and_says_why() {
    let locks = Locks::new().await;
    let brief = Duration::from_secs(3);
    let lease = locks.one.try_lock(&locks.id, brief, Owner::fresh()).await.unwrap().unwrap();
    lease.note(b"half way".to_vec()).await.unwrap();
    let asked = Instant::now();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
    lease.release(Ended::Cut("it would not end".into())).await.unwrap();
    // The next holder's own, longer lease does not matter: the record has the one that binds.
    let next = loop {
        if let Some(next) = locks.take(&locks.two).await {
            break next;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(asked.elapsed() >= brief);
    let record = locks.one.inspect(&locks.id).await.unwrap().unwrap();
    assert_eq!((record.fence, record.owner, record.ended), (next.fence(), next.lease_id(), None));
    assert_eq!(record.note, b"half way");
    assert_eq!(next.note(vec![0; 1025]).await.unwrap_err().kind(), ErrorKind::TooLarge);
}

/// S13: past its end there is no renewal, only a fresh acquisition with a new fence.
#[tokio::test]
async fn a_lease_that_has_run_out_cannot_be_renewed() {
    let locks = Locks::new().await;
    let owner = Owner::fresh();
    let lease = locks.one.try_lock(&locks.id, LOCK_LEASE, owner).await.unwrap().unwrap();
    locks.sql().execute("UPDATE bus_lock SET renewed_at = renewed_at - 300000000000", []).unwrap();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
    let anew = locks.one.try_lock(&locks.id, LOCK_LEASE, owner).await.unwrap().unwrap();
    assert!(anew.fence() > lease.fence());
}

/// S26: whatever another clock shows, a lock that was taken by it is held for a lease after it was last seen to be renewed;
/// then it is free, however far that clock is behind ours or ahead of it.
#[tokio::test]
async fn by_another_clock_a_lease_is_waited_out_by_ones_own() {
    const SECOND: i64 = 1_000_000_000;
    for shown in [7 * SECOND, 1 << 60] {
        let locks = Locks::new().await;
        let former = locks.take(&locks.one).await.unwrap();
        let sql = locks.sql();
        let other = another_clock(&sql, None);
        let renew = |at: i64| {
            let renewal = "UPDATE bus_lock SET boot = ?1, renewed_at = ?2, lease = ?3";
            sql.execute(renewal, (other, at, 2 * SECOND)).unwrap();
        };
        renew(shown);
        assert!(locks.take(&locks.two).await.is_none());
        let held_for = locks.one.inspect(&locks.id).await.unwrap().unwrap().held_for;
        assert!(held_for.is_some_and(|time| time <= Duration::from_secs(2)), "{held_for:?}");
        // Renewed by a clock that we have seen less of.
        renew(shown + 100 * SECOND);
        let looked = Instant::now();
        assert!(locks.take(&locks.two).await.is_none());
        let next = loop {
            if let Some(next) = locks.take(&locks.two).await {
                break next;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert!(looked.elapsed() >= Duration::from_secs(2), "after {:?}", looked.elapsed());
        assert!(next.fence() > former.fence());
    }
}

/// S27: where it is known what the other clock shows by now, a record that is long dead costs nothing.
#[tokio::test]
async fn a_dead_lease_by_another_clock_that_goes_on_costs_nothing() {
    let locks = Locks::new().await;
    locks.take(&locks.one).await.unwrap();
    let sql = locks.sql();
    let renewed = 1_i64 << 50;
    let later = renewed + i64::try_from(LOCK_LEASE.as_nanos()).unwrap();
    let other = another_clock(&sql, Some(later - 1_000_000_000_000));
    sql.execute("UPDATE bus_lock SET boot = ?1, renewed_at = ?2", (other, renewed)).unwrap();
    assert!(locks.take(&locks.two).await.is_none());
    sql.execute("UPDATE bus_boot SET seen = ?2 WHERE id = ?1", (other, later)).unwrap();
    assert_eq!(locks.one.inspect(&locks.id).await.unwrap().unwrap().held_for, None);
    assert!(locks.take(&locks.two).await.is_some());
}

/// Two files under one name keep nobody apart.
#[tokio::test]
async fn a_file_replaced_beneath_the_holder_is_loss() {
    let locks = Locks::new().await;
    let file = locks.directory.path().join("bus.db");
    let lease = locks.take(&locks.one).await.unwrap();
    let other = locks.directory.path().join("other.db");
    open(&other).await.unwrap().close().await;
    std::fs::rename(&other, &file).unwrap();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
    let _new = open(&file).await.unwrap();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
    assert!(locks.two.try_lock(&locks.id, LOCK_LEASE, Owner::fresh()).await.is_err());
}

/// S28: a planned take-over does not wait for a poll, and a release between asking and watching is not missed.
#[tokio::test]
async fn a_watch_tells_of_a_release() {
    let locks = Locks::new().await;
    for released_before_watching in [false, true] {
        let lease = locks.take(&locks.one).await.unwrap();
        assert!(locks.take(&locks.two).await.is_none());
        if released_before_watching {
            lease.release(Ended::Clean).await.unwrap();
            tokio::time::timeout(PATIENCE, locks.two.watch(&locks.id)).await.unwrap();
        } else {
            let release = lease.release(Ended::Clean);
            let both = async { tokio::join!(locks.two.watch(&locks.id), release).1 };
            tokio::time::timeout(PATIENCE, both).await.unwrap().unwrap();
        }
        locks.take(&locks.two).await.unwrap().release(Ended::Clean).await.unwrap();
    }
}

/// A process that was frozen while it wrote keeps the file locked: calls end all the same.
#[tokio::test]
async fn a_call_ends_in_time_though_the_file_is_locked() {
    let locks = Locks::new().await;
    // Each call has a tenth of it, and it has not run out after two of them, also on a busy machine.
    let brief = Duration::from_secs(10);
    let lease = locks.one.try_lock(&locks.id, brief, Owner::fresh()).await.unwrap().unwrap();
    let gate = std::fs::File::open(locks.directory.path().join("bus.db.lock")).unwrap();
    gate.lock().unwrap();
    assert_eq!(lease.renew().await.unwrap_err().kind(), ErrorKind::Timeout);
    let other = LockId::from("queue/other");
    let taking = locks.two.try_lock(&other, brief, Owner::fresh()).await;
    assert_eq!(taking.err().map(|e| e.kind()), Some(ErrorKind::Timeout));
    // Reading does not need a turn. What was given up on was withdrawn.
    gate.unlock().unwrap();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
    assert!(locks.two.inspect(&other).await.unwrap().is_none());
}

#[tokio::test]
async fn records_are_listed_by_prefix() {
    let locks = Locks::new().await;
    for id in ["queue/a", "queue/b", "schedule/a", "queu%"] {
        locks.one.try_lock(&LockId::from(id), LOCK_LEASE, Owner::fresh()).await.unwrap().unwrap();
    }
    let listed = locks.two.list("queue/").await.unwrap();
    let ids: Vec<_> = listed.iter().map(|record| record.id.as_str()).collect();
    assert_eq!(ids, ["queue/a", "queue/b"]);
    assert!(listed.iter().all(|record| record.held_for.is_some()));
    assert_eq!(locks.two.list("").await.unwrap().len(), 4);
}
