//! Fence rows: which term of a singleton may touch its endpoint.

use std::time::Duration;

use super::queue::{Now, Queue};
use super::store::{Handle, error};
use crate::clock::BootInstant;
use crate::contract::{
    BoxFuture, ConsumerSpec, Fence, FenceClaim, FenceGuard, FenceRow, Fencing, Raised, SqlExecutor,
};
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;

/// An endpoint's row.
pub(super) struct Row {
    lock: String,
    pub(super) fence: Fence,
    until: BootInstant,
}

impl Row {
    /// The lock that it belongs to.
    #[cfg(feature = "testing")]
    pub(super) fn lock(&self) -> &str {
        &self.lock
    }

    fn bound_for(&self, now: Now) -> Duration {
        self.until.since(now.boot)
    }

    /// Why a claim does not get the row; `None` if it does.
    fn refuses(&self, claim: &FenceClaim, now: Now) -> Option<Raised> {
        let same_lock = self.lock == claim.lock;
        let free_in = self.bound_for(now);
        if !same_lock && !free_in.is_zero() {
            return Some(Raised::OtherLock { lock: self.lock.clone(), free_in });
        }
        let outdated = if same_lock { claim.fence < self.fence } else { claim.fence <= self.fence };
        outdated.then_some(Raised::Outdated { in_force: self.fence })
    }
}

impl Queue {
    pub(super) fn raise(&mut self, claim: FenceClaim, now: Now) -> Raised {
        if let Some(refusal) = self.fence.as_ref().and_then(|row| row.refuses(&claim, now)) {
            return refusal;
        }
        let new_term = self.fence.as_ref().is_some_and(|row| row.fence < claim.fence);
        self.fence = Some(Row { lock: claim.lock, fence: claim.fence, until: now.boot + claim.lock_lease });
        if new_term {
            self.lapse_fenced_claims(now);
        }
        // A former holder's consumer that waits for messages learns that its term is over.
        self.changed.notify_waiters();
        Raised::Raised
    }

    /// Keeps the row bound to the lock of the term that claims.
    pub(super) fn keep_bound(&mut self, spec: &ConsumerSpec, now: Now) {
        if let (Some(row), Some(_), Some(lock_lease)) = (&mut self.fence, spec.fence, spec.lock_lease) {
            row.until = row.until.max(now.boot + lock_lease);
        }
    }
}

/// The store's fence rows, for a host.
pub(super) struct MemoryFencing(pub(super) Handle);

impl Fencing for MemoryFencing {
    fn raise(&self, claim: FenceClaim) -> BoxFuture<'_, Result<Raised>> {
        Box::pin(async move {
            let store = self.0.store()?;
            let now = store.now();
            let endpoint = std::sync::Arc::clone(&claim.endpoint);
            let raised = store.messages.lock().prepare(&endpoint).raise(claim, now);
            store.worked.notify_waiters();
            Ok(raised)
        })
    }

    fn row<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<FenceRow>>> {
        Box::pin(async move {
            let store = self.0.store()?;
            let now = store.now();
            let messages = store.messages.lock();
            let row = messages.queues.get(endpoint).and_then(|queue| queue.fence.as_ref());
            Ok(row.map(|row| FenceRow::new(row.lock.as_str(), row.fence, row.bound_for(now))))
        })
    }

    fn check_in<'a>(
        &'a self,
        _transaction: &'a mut dyn SqlExecutor,
        _guard: &'a FenceGuard,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(Err(error(
            ErrorKind::Unsupported,
            "the memory store has no database to commit to",
        ))))
    }
}
