//! A store of a test host's own, and what it can do beyond the contract: see whether anything is left to do, and bring
//! about what brokers, networks and other processes do.

use std::sync::Arc;

use tokio::sync::Notify;

use super::lock::MemoryLocks;
use super::store::{Handle, Store};
use super::transport::MemoryTransport;
use crate::clock::Clock;
use crate::contract::{DeadLetter, Depth, Fence, FenceClaim, LockId, LockManager, Transport};
use crate::error::Result;
use crate::message::{Endpoint, Receipt};
use crate::settings::Order;

/// A store that no URL leads to, and that is gone with its last user.
pub(crate) struct Control {
    store: Arc<Store>,
}

impl Control {
    /// An empty store. `worked` is told whenever a consumer has claimed, extended or settled something, or a term
    /// has begun.
    pub(crate) fn new(name: &str, clock: Clock, worked: Arc<Notify>) -> Self {
        Control { store: Arc::new(Store::new(name.to_owned(), clock, worked)) }
    }

    /// The store's messages, for one host.
    pub(crate) fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(MemoryTransport::new(Handle::of(Arc::clone(&self.store))))
    }

    /// The store's locks, for one host.
    pub(crate) fn locks(&self) -> Arc<dyn LockManager> {
        Arc::new(MemoryLocks::new(Handle::of(Arc::clone(&self.store))))
    }

    /// Whether nothing of the endpoint is claimed, nor could be until time has passed.
    pub(crate) fn is_at_rest(&self, endpoint: &Endpoint, order: Order) -> bool {
        let now = self.store.now();
        let messages = self.store.messages.lock();
        messages.queues.get(endpoint).is_none_or(|queue| queue.is_at_rest(order, now))
    }

    /// How much is where; nothing anywhere if there is no such endpoint.
    pub(crate) fn depth(&self, endpoint: &Endpoint) -> Depth {
        let now = self.store.now();
        let messages = self.store.messages.lock();
        messages.queues.get(endpoint).map(|queue| queue.depth(now)).unwrap_or_default()
    }

    /// The dead letters of all endpoints, oldest first for each.
    pub(crate) fn dead_letters(&self) -> Vec<DeadLetter> {
        let messages = self.store.messages.lock();
        messages.queues.iter().flat_map(|(endpoint, queue)| queue.dead.all(endpoint)).collect()
    }

    /// Ends a claim without an outcome: its holder finds it lost, and the message is available at once.
    pub(crate) fn expire_claim(&self, endpoint: &Endpoint, receipt: &Receipt) -> Result<()> {
        self.store.messages.lock().queue(endpoint)?.expire(receipt)
    }

    /// Puts a second copy of a claimed message into its queue, under the same id.
    pub(crate) fn duplicate(&self, endpoint: &Endpoint, receipt: &Receipt) -> Result<()> {
        let now = self.store.now();
        let mut messages = self.store.messages.lock();
        let envelope = messages.queue(endpoint)?.claimed(receipt)?;
        let row = messages.next_row();
        messages.queue(endpoint)?.add(row, envelope, None, now);
        Ok(())
    }

    /// Gives a lock of this store that is held to somebody who never renews it. Answers their fence, and for how long
    /// they have it; `None` if the lock is not held.
    pub(crate) fn pass_lock_to_stranger(&self, lock: &LockId) -> Option<(Fence, std::time::Duration)> {
        let now = self.store.now();
        self.store.locks.lock().pass_to_stranger(lock, now)
    }

    /// Whether somebody holds a lock of this store.
    pub(crate) fn is_locked(&self, lock: &LockId) -> bool {
        let now = self.store.now();
        self.store.locks.lock().is_held(lock, now)
    }

    /// Raises an endpoint's row in this store, as the winner of a lock does before anything else.
    pub(crate) fn raise(&self, claim: FenceClaim) {
        let now = self.store.now();
        let endpoint = Arc::clone(&claim.endpoint);
        self.store.messages.lock().prepare(&endpoint).raise(claim, now);
    }

    /// The lock that an endpoint's row belongs to: its manager's authority, and its id.
    pub(crate) fn lock_of(&self, endpoint: &Endpoint) -> Option<(String, LockId)> {
        let messages = self.store.messages.lock();
        let (authority, id) = messages.queues.get(endpoint)?.fence.as_ref()?.lock().split_once('#')?;
        Some((authority.to_owned(), LockId::from(id)))
    }
}
