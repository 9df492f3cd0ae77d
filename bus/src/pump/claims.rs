//! The claims that a pump holds: from receipt to settlement, each kept alive, each known to be lost when it is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use crate::clock::BootInstant;
use crate::message::{Delivery, MessageId, Receipt};
use crate::scope::Scope;

/// Numbers a claim within its pump.
pub(super) type Key = u64;

/// The claims of one pump.
#[derive(Default)]
pub(super) struct Claims {
    table: Mutex<Table>,
    /// Told when a claim is taken in where there was none.
    first: Notify,
}

#[derive(Default)]
struct Table {
    next: Key,
    claims: HashMap<Key, Claim>,
}

struct Claim {
    receipt: Receipt,
    id: MessageId,
    /// Until when it is certainly ours.
    expires: BootInstant,
    /// The store has said that it is no longer ours.
    lost: bool,
    /// Its run has ended: what the store says to the verdict is what counts.
    judged: bool,
    scope: Scope,
}

impl Claims {
    /// Takes a fresh claim in.
    pub(super) fn add(&self, delivery: &Delivery, expires: BootInstant) -> Key {
        let mut table = self.table.lock();
        if table.claims.is_empty() {
            self.first.notify_one();
        }
        let key = table.next;
        table.next += 1;
        let claim = Claim {
            receipt: delivery.receipt.clone(),
            id: delivery.envelope.id,
            expires,
            lost: false,
            judged: false,
            scope: delivery.scope.clone(),
        };
        table.claims.insert(key, claim);
        key
    }

    /// Whether the claim is certainly ours now: whoever is about to start its message asks.
    pub(super) fn is_alive(&self, key: Key, now: BootInstant) -> bool {
        self.table.lock().claims.get(&key).is_some_and(|claim| !claim.lost && now < claim.expires)
    }

    /// Whether the store has said that it is not ours. A claim that merely ran out may still be.
    pub(super) fn is_lost(&self, key: Key) -> bool {
        self.table.lock().claims.get(&key).is_none_or(|claim| claim.lost)
    }

    /// The claim's receipt as it is now; extending may have changed it.
    pub(super) fn receipt(&self, key: Key) -> Option<Receipt> {
        self.table.lock().claims.get(&key).map(|claim| claim.receipt.clone())
    }

    /// Forgets the claim: it has been settled, or is not ours any more.
    pub(super) fn remove(&self, key: Key) {
        let removed = self.table.lock().claims.remove(&key);
        // Outside the lock, since a scope may hold the user's values.
        drop(removed);
    }

    /// The claims that are to be extended: all that are not known to be lost.
    pub(super) fn living(&self) -> (Vec<Key>, Vec<Receipt>) {
        let table = self.table.lock();
        table
            .claims
            .iter()
            .filter(|(_, claim)| !claim.lost)
            .map(|(key, claim)| (*key, claim.receipt.clone()))
            .unzip()
    }

    /// Notes that a claim was extended, by a call made at `asked`.
    pub(super) fn extended(&self, key: Key, receipt: Receipt, asked: BootInstant, lease: Duration) {
        if let Some(claim) = self.table.lock().claims.get_mut(&key) {
            claim.receipt = receipt;
            claim.expires = asked + lease;
        }
    }

    /// Notes that there is a verdict: from here on the claim may end in the store at any moment, by our own settling.
    pub(super) fn judged(&self, key: Key) {
        if let Some(claim) = self.table.lock().claims.get_mut(&key) {
            claim.judged = true;
        }
    }

    /// Notes that a claim is no longer ours, and asks its run to end. Answers the message's id the first time.
    pub(super) fn lost(&self, key: Key) -> Option<MessageId> {
        let (id, scope) = {
            let mut table = self.table.lock();
            let claim = table.claims.get_mut(&key).filter(|claim| !claim.lost && !claim.judged)?;
            claim.lost = true;
            (claim.id, claim.scope.clone())
        };
        scope.cancel();
        Some(id)
    }

    /// Whether no claim is held.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns when a claim is held; for one waiter.
    pub(super) async fn taken(&self) {
        while self.is_empty() {
            self.first.notified().await;
        }
    }

    /// How many claims are held.
    pub(super) fn len(&self) -> usize {
        self.table.lock().claims.len()
    }
}

/// Which messages' runs are under way, by name, for the warnings of those that take too long.
#[derive(Default)]
pub(super) struct Running(Mutex<HashMap<Key, Run>>);

struct Run {
    id: MessageId,
    since: BootInstant,
    /// Given up when the run takes too long: what can be neither awaited nor dropped holds up nobody else.
    hold: Option<Hold>,
}

/// What a run holds against those that are not to be under way at the same time.
pub(super) enum Hold {
    /// None that is made alone.
    AmongOthers { _no_lone: OwnedRwLockReadGuard<()> },
    /// None at all.
    Alone { _no_other: OwnedRwLockWriteGuard<()> },
}

impl Running {
    /// Notes a run, and keeps what it holds, for as long as the answer lives.
    pub(super) fn enter(
        self: &Arc<Self>,
        key: Key,
        id: MessageId,
        hold: Hold,
        now: BootInstant,
    ) -> RunningGuard {
        self.0.lock().insert(key, Run { id, since: now, hold: Some(hold) });
        RunningGuard { running: Arc::clone(self), key }
    }

    /// The messages whose runs are under way.
    pub(super) fn ids(&self) -> Vec<MessageId> {
        self.0.lock().values().map(|run| run.id).collect()
    }

    /// The messages whose runs have taken longer than this by now, each once. They hold up nobody from now on.
    pub(super) fn overdue(&self, now: BootInstant, longest: Duration) -> Vec<MessageId> {
        let mut running = self.0.lock();
        let late = running.values_mut().filter(|run| now.since(run.since) > longest);
        late.filter_map(|run| run.hold.take().map(|_given_up| run.id)).collect()
    }

    /// How many runs have taken too long.
    pub(super) fn stuck(&self) -> usize {
        self.0.lock().values().filter(|run| run.hold.is_none()).count()
    }

    /// How many runs are under way.
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// A run that is under way.
pub(super) struct RunningGuard {
    running: Arc<Running>,
    key: Key,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.running.0.lock().remove(&self.key);
    }
}
