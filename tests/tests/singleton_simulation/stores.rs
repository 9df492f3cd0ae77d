//! The store of locks and the store of messages, each as simple as the contract allows.

use uuid::Uuid;

use super::plan::{LEASE, Mutation};

/// Whether a term ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clean(pub(crate) bool);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) owner: Uuid,
    pub(crate) fence: u64,
    /// By the store's clock.
    until: u64,
    ended: Option<Clean>,
}

/// One lock, whose leases run out by the store's own clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockStore {
    record: Option<Record>,
    highest: u64,
    /// A mutated store's counter that the clock does not help.
    counts_only: bool,
}

impl LockStore {
    /// `None` if held elsewhere. Idempotent for an owner that holds it.
    pub(crate) fn try_lock(&mut self, now: u64, owner: Uuid) -> Option<u64> {
        if let Some(record) = &mut self.record
            && record.ended != Some(Clean(true))
            && now < record.until
        {
            if record.owner != owner || record.ended.is_some() {
                return None;
            }
            record.until = now + LEASE;
            return Some(record.fence);
        }
        self.highest += 1;
        if !self.counts_only {
            self.highest = self.highest.max(now / 1000);
        }
        let fence = self.highest;
        self.record = Some(Record { owner, fence, until: now + LEASE, ended: None });
        Some(fence)
    }

    pub(crate) fn renew(&mut self, now: u64, owner: Uuid, fence: u64, mutation: Option<Mutation>) -> bool {
        let unchecked = mutation == Some(Mutation::RenewWithoutOwnerCheck);
        match &mut self.record {
            Some(record)
                if unchecked
                    || (record.owner == owner && record.fence == fence && record.ended.is_none()) =>
            {
                record.until = now + LEASE;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn release(
        &mut self,
        owner: Uuid,
        fence: Option<u64>,
        clean: bool,
        mutation: Option<Mutation>,
    ) {
        let unchecked = mutation == Some(Mutation::ReleaseWithoutOwnerCheck);
        if let Some(record) = &mut self.record
            && (unchecked || (record.owner == owner && fence.is_none_or(|fence| fence == record.fence)))
        {
            // What was cut frees nothing early: its record runs out.
            record.ended = Some(Clean(clean));
            if mutation == Some(Mutation::FenceResetOnRelease) {
                self.highest = 0;
                self.counts_only = true;
                self.record = None;
            }
        }
    }
}

/// What the message store answers to a raise.
pub(crate) enum RaiseAnswer {
    Raised,
    Outdated,
    OtherLock { free_in: u64 },
}

/// The endpoint's row, and a count in place of messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageStore {
    pub(crate) fence: u64,
    /// Another lock binds the row until then.
    pub(crate) other_until: u64,
}

impl MessageStore {
    pub(crate) fn raise(&mut self, now: u64, fence: u64) -> RaiseAnswer {
        if now < self.other_until {
            return RaiseAnswer::OtherLock { free_in: self.other_until - now };
        }
        self.other_until = 0;
        if fence < self.fence {
            return RaiseAnswer::Outdated;
        }
        self.fence = fence;
        RaiseAnswer::Raised
    }

    pub(crate) fn accepts(&self, fence: u64) -> bool {
        self.fence == fence
    }
}
