//! Locks: one record each, which outlives every term of it.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::queue::Now;
use super::store::{Handle, error};
use crate::clock::BootInstant;
use crate::contract::{
    BoxFuture, Durability, Ended, Fence, Grant, LONGEST_LOCK_LEASE, Lease, LeaseRange, LockGuarantees,
    LockId, LockManager, LockRecord, Owner, Reach, Renewal, check_note,
};
use crate::error::{ErrorKind, Result};

/// The leases that it takes.
pub(super) const LEASES: LeaseRange = LeaseRange::new(Duration::from_millis(10), LONGEST_LOCK_LEASE);

/// All locks of a store.
#[derive(Default)]
pub(super) struct LockTable {
    records: BTreeMap<LockId, Record>,
    /// Told whenever some lock was freed. One for all: candidates are few.
    freed: Arc<Notify>,
}

/// What is known of a lock and its last term.
struct Record {
    owner: Owner,
    fence: Fence,
    lock_lease: Duration,
    /// Taken until then, unless cleanly released.
    until: BootInstant,
    ended: Option<Ended>,
    note: Vec<u8>,
}

impl Record {
    fn held_for(&self, now: Now) -> Option<Duration> {
        let left = self.until.since(now.boot);
        (self.ended != Some(Ended::Clean) && !left.is_zero()).then_some(left)
    }

    /// The term goes on: it has neither ended nor run out.
    fn is_alive(&self, now: Now) -> bool {
        self.ended.is_none() && self.held_for(now).is_some()
    }

    fn prolong(&mut self, lock_lease: Duration, now: Now) {
        self.lock_lease = lock_lease;
        self.until = now.boot + lock_lease;
    }

    fn view(&self, id: &LockId, now: Now) -> LockRecord {
        let mut view = LockRecord::new(id.clone(), self.owner, self.fence, self.lock_lease);
        view.held_for = self.held_for(now);
        view.ended = self.ended.clone();
        view.note = self.note.clone();
        view
    }
}

impl LockTable {
    fn try_lock(&mut self, id: &LockId, lock_lease: Duration, owner: Owner, now: Now) -> Option<Fence> {
        let before = self.records.get_mut(id);
        if let Some(record) = before
            && record.held_for(now).is_some()
        {
            // The same owner asks again because an answer was lost.
            let again = record.owner == owner && record.is_alive(now);
            return again.then(|| {
                record.prolong(lock_lease, now);
                record.fence
            });
        }
        let (last, note) = self.records.remove(id).map(|record| (record.fence, record.note)).unzip();
        let (fence, note) = (Fence::next(last, now.wall), note.unwrap_or_default());
        let until = now.boot + lock_lease;
        self.records.insert(id.clone(), Record { owner, fence, lock_lease, until, ended: None, note });
        Some(fence)
    }

    #[cfg(feature = "testing")]
    pub(super) fn is_held(&self, id: &LockId, now: Now) -> bool {
        self.records.get(id).is_some_and(|record| record.held_for(now).is_some())
    }

    /// Gives a lock that is held to nobody in particular, who will not renew it. Answers their fence and lease.
    #[cfg(feature = "testing")]
    pub(super) fn pass_to_stranger(&mut self, id: &LockId, now: Now) -> Option<(Fence, Duration)> {
        let record = self.records.get_mut(id).filter(|record| record.is_alive(now))?;
        record.owner = Owner::fresh();
        record.fence = Fence::new(record.fence.get() + 1);
        record.until = now.boot + record.lock_lease;
        Some((record.fence, record.lock_lease))
    }

    /// The record, if it is still that of this term.
    fn of_term(&mut self, term: &Grant) -> Option<&mut Record> {
        self.records
            .get_mut(&term.lock_id)
            .filter(|record| record.owner == term.owner && record.fence == term.fence)
    }

    fn end(&mut self, id: &LockId, owner: Owner, fence: Option<Fence>, ended: Ended) {
        let record = self.records.get_mut(id).filter(|record| {
            record.owner == owner && fence.is_none_or(|f| record.fence == f) && record.ended.is_none()
        });
        if let Some(record) = record {
            record.ended = Some(ended);
            self.freed.notify_waiters();
        }
    }
}

/// The locks of a store, for a host.
pub(super) struct MemoryLocks {
    handle: Handle,
}

impl MemoryLocks {
    pub(super) fn new(handle: Handle) -> Self {
        MemoryLocks { handle }
    }
}

fn check_lease(lock_lease: Duration) -> Result<()> {
    if LEASES.contains(lock_lease) {
        return Ok(());
    }
    Err(error(ErrorKind::InvalidInput, "a lock's lease is between 10 ms and 10 min")
        .with("lock_lease", format!("{lock_lease:?}")))
}

impl LockManager for MemoryLocks {
    fn guarantees(&self) -> LockGuarantees {
        let mut guarantees = LockGuarantees::new(
            format!("memory:{}", self.handle.name()),
            Reach::Process,
            "the clock of whoever opened the store first",
        );
        guarantees.durability = Durability::ProcessMemory;
        guarantees.watch = true;
        guarantees.leases = LEASES;
        guarantees
    }

    fn initialize(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.handle.store().map(drop) })
    }

    fn try_lock<'a>(
        &'a self,
        id: &'a LockId,
        lock_lease: Duration,
        owner: Owner,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lease>>>> {
        Box::pin(async move {
            check_lease(lock_lease)?;
            let store = self.handle.store()?;
            let now = store.now();
            let fence = store.locks.lock().try_lock(id, lock_lease, owner, now);
            Ok(fence.map(|fence| {
                let grant = Grant::new(id.clone(), owner, fence, lock_lease);
                Box::new(MemoryLease { handle: self.handle.clone(), grant }) as Box<dyn Lease>
            }))
        })
    }

    fn give_up<'a>(&'a self, id: &'a LockId, owner: Owner) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.handle.store()?.locks.lock().end(id, owner, None, Ended::Clean);
            Ok(())
        })
    }

    fn watch<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Ok(store) = self.handle.store() else { return std::future::pending().await };
            let notify = Arc::clone(&store.locks.lock().freed);
            loop {
                let mut freed = pin!(notify.notified());
                freed.as_mut().enable();
                let now = store.now();
                let held_for = store.locks.lock().records.get(id).and_then(|record| record.held_for(now));
                let Some(left) = held_for else { return };
                tokio::select! {
                    () = freed => {}
                    () = tokio::time::sleep(left) => {}
                }
            }
        })
    }

    fn inspect<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, Result<Option<LockRecord>>> {
        Box::pin(async move {
            let store = self.handle.store()?;
            let now = store.now();
            Ok(store.locks.lock().records.get(id).map(|record| record.view(id, now)))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<LockRecord>>> {
        Box::pin(async move {
            let store = self.handle.store()?;
            let now = store.now();
            let locks = store.locks.lock();
            let wanted = locks.records.iter().filter(|(id, _)| id.as_str().starts_with(prefix));
            Ok(wanted.map(|(id, record)| record.view(id, now)).collect())
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.handle.close() })
    }
}

struct MemoryLease {
    handle: Handle,
    grant: Grant,
}

impl Lease for MemoryLease {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    fn renew(&self) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(async move {
            let store = self.handle.store()?;
            let now = store.now();
            let mut locks = store.locks.lock();
            Ok(match locks.of_term(&self.grant).filter(|record| record.is_alive(now)) {
                Some(record) => {
                    record.prolong(self.grant.lock_lease, now);
                    Renewal::Held
                }
                None => Renewal::Lost,
            })
        })
    }

    fn note(&self, note: Vec<u8>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            check_note(&note)?;
            if let Some(record) = self.handle.store()?.locks.lock().of_term(&self.grant) {
                record.note = note;
            }
            Ok(())
        })
    }

    fn release(&self, ended: Ended) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let Grant { lock_id, owner, fence, .. } = &self.grant;
            self.handle.store()?.locks.lock().end(lock_id, *owner, Some(*fence), ended);
            Ok(())
        })
    }
}
