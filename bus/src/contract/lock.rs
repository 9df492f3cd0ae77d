//! Locks with leases: what a lock manager does.

use std::fmt;
use std::time::Duration;

use uuid::Uuid;

use super::{BoxFuture, Durability, Fence, Reach};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Endpoint;

/// Names a lock, stably: `[namespace/][transport/]{queue|subscription|schedule|service|group}/name`.
///
/// Never derived from a type's path or a version: two releases of one program must agree on it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId(String);

impl LockId {
    /// The lock of an endpoint. The transport `default` is left out, as is a missing namespace.
    pub fn of_endpoint(namespace: Option<&str>, transport: &str, endpoint: &Endpoint) -> Self {
        let kind = match endpoint {
            Endpoint::Queue(_) => "queue",
            Endpoint::Subscription { .. } => "subscription",
        };
        LockId::of(namespace, transport, kind, &endpoint.to_string())
    }

    /// The lock of something else, `kind` being `schedule`, `service` or `group`.
    pub fn of(namespace: Option<&str>, transport: &str, kind: &str, name: &str) -> Self {
        let transport = (transport != "default").then_some(transport);
        LockId(
            [namespace, transport, Some(kind), Some(name)]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join("/"),
        )
    }

    /// The id itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for LockId {
    fn from(id: &str) -> Self {
        LockId(id.to_owned())
    }
}

impl fmt::Display for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Who holds a lock: fresh for every acquisition, so that no restart on the same machine passes for the same owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(Uuid);

impl Owner {
    /// An owner that nobody has been before.
    pub fn fresh() -> Self {
        Owner(Uuid::new_v4())
    }

    /// As a UUID.
    pub const fn as_uuid(&self) -> &Uuid {
        &self.0
    }
}

impl From<Uuid> for Owner {
    fn from(id: Uuid) -> Self {
        Owner(id)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a renewal found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The lock is ours for another lease, counted from before the request was sent.
    Held,
    /// The lock is definitely not ours any more.
    Lost,
}

/// How a term ended, told at release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The run had ended by itself: the next holder may start at once.
    Clean,
    /// The run was cut off, for this reason: the record stays taken until its lease has run out.
    Cut(String),
}

/// Gives out locks. Called only from the host's keeper thread, on whose runtime it was opened.
pub trait LockManager: Send + Sync + 'static {
    /// What it can promise; printed at start.
    fn guarantees(&self) -> LockGuarantees;

    /// Creates what it needs in the store. Called once, before anything else; several hosts at once are no error.
    fn initialize(&self) -> BoxFuture<'_, Result<()>>;

    /// Takes the lock for `lock_lease`, unless it is held elsewhere: that is `None`, never an error.
    ///
    /// Taken is: never held, cleanly released, or its record has run out by the store's clock, reckoned with the lease
    /// time that *its holder* recorded. The fence is the [next](Fence::next), so that it grows across release, expiry and
    /// a restore from backup. Called again with the same `owner` while that owner holds the
    /// lock (an answer was lost), it answers with the same lease, extended, and the same fence.
    fn try_lock<'a>(
        &'a self,
        id: &'a LockId,
        lock_lease: Duration,
        owner: Owner,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lease>>>>;

    /// Gives up whatever `owner` may have acquired without knowing: releases the lock if it is theirs, else nothing.
    fn give_up<'a>(&'a self, id: &'a LockId, owner: Owner) -> BoxFuture<'a, Result<()>>;

    /// Returns when the lock was perhaps freed: a hint, behind which the caller polls. By default never.
    fn watch<'a>(&'a self, _id: &'a LockId) -> BoxFuture<'a, ()> {
        Box::pin(std::future::pending())
    }

    /// The lock's record, for people and for tests. By default unknown.
    fn inspect<'a>(&'a self, _id: &'a LockId) -> BoxFuture<'a, Result<Option<LockRecord>>> {
        Box::pin(async { Ok(None) })
    }

    /// All records whose id begins with `prefix`, for people. By default none.
    fn list<'a>(&'a self, _prefix: &'a str) -> BoxFuture<'a, Result<Vec<LockRecord>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Waits until this process has lost the store for good, as [`Transport::lost`](super::Transport::lost) does. By
    /// default never.
    fn lost(&self) -> BoxFuture<'_, Error> {
        Box::pin(std::future::pending())
    }

    /// Lets go of the store. Called last of all.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The longest lease of a lock: a crashed holder keeps everybody else out for this long.
pub const LONGEST_LOCK_LEASE: Duration = Duration::from_secs(600);

/// The largest note that is kept with a lock, in bytes.
pub const LARGEST_NOTE: usize = 1024;

/// Refuses a note that is larger than [`LARGEST_NOTE`].
///
/// # Errors
/// [`ErrorKind::TooLarge`].
pub fn check_note(note: &[u8]) -> Result<()> {
    if note.len() > LARGEST_NOTE {
        let error = Error::new(ErrorKind::TooLarge, "a lock's note is at most 1 KiB");
        return Err(error.with("bytes", note.len()));
    }
    Ok(())
}

/// How long a server may take to answer a call about a lock of this lease: a tenth of it, but half a second at the least,
/// since a busy machine alone would fail a call in less. Whoever holds a lock has a time-out of its own for each try.
pub fn try_time(lock_lease: Duration) -> Duration {
    (lock_lease / 10).max(Duration::from_millis(500))
}

/// What [`LockManager::try_lock`] has given out: what a backend keeps of a lease, and makes its writes conditional on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Which lock.
    pub lock_id: LockId,
    /// To whom.
    pub owner: Owner,
    /// The term's number.
    pub fence: Fence,
    /// How long it lasts unless renewed.
    pub lock_lease: Duration,
}

impl Grant {
    /// A grant of `lock_id` to `owner`.
    pub fn new(lock_id: LockId, owner: Owner, fence: Fence, lock_lease: Duration) -> Self {
        Grant { lock_id, owner, fence, lock_lease }
    }
}

/// A lock that was taken. Dropping it does nothing: the lease runs out.
pub trait Lease: Send + Sync + 'static {
    /// What was given out.
    fn grant(&self) -> &Grant;

    /// Which lock.
    fn lock_id(&self) -> &LockId {
        &self.grant().lock_id
    }

    /// Whose: the owner given to [`LockManager::try_lock`].
    fn lease_id(&self) -> Owner {
        self.grant().owner
    }

    /// The term's number.
    fn fence(&self) -> Fence {
        self.grant().fence
    }

    /// Makes the lock last for another lease from now: a conditional write on owner and fence, whose effect is checked.
    /// An error says nothing about who holds it.
    fn renew(&self) -> BoxFuture<'_, Result<Renewal>>;

    /// Keeps up to [`LARGEST_NOTE`] with the record (see [`check_note`]), for [`LockManager::inspect`] and the next holder. By default forgotten.
    fn note(&self, _note: Vec<u8>) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Ends the term: a conditional write on owner and fence. That the lock is no longer ours is no error. After
    /// [`Ended::Cut`] the record stays taken until its lease has run out.
    fn release(&self, ended: Ended) -> BoxFuture<'_, Result<()>>;
}

/// A lock's record as it stands in the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockRecord {
    /// Which lock.
    pub id: LockId,
    /// Who holds it, or held it last.
    pub owner: Owner,
    /// The last term's number.
    pub fence: Fence,
    /// The lease time that the holder recorded.
    pub lock_lease: Duration,
    /// How long it is still held unless renewed, at the most: some stores tell only that it is, and then it is a whole
    /// lease. `None` if it is free.
    pub held_for: Option<Duration>,
    /// How the last term ended; `None` while it goes on, or if its holder died.
    pub ended: Option<Ended>,
    /// What its holder noted.
    pub note: Vec<u8>,
}

impl LockRecord {
    /// A record of a lock that is free.
    pub fn new(id: LockId, owner: Owner, fence: Fence, lock_lease: Duration) -> Self {
        LockRecord { id, owner, fence, lock_lease, held_for: None, ended: None, note: Vec::new() }
    }
}

/// Which leases a lock manager takes.
///
/// ```
/// use std::time::Duration;
/// use bus::contract::LeaseRange;
///
/// const LEASES: LeaseRange = LeaseRange::new(Duration::from_secs(15), Duration::from_secs(60));
/// assert!(LEASES.contains(LEASES.default) && !LEASES.contains(Duration::from_secs(61)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseRange {
    /// The shortest that it can hold.
    pub shortest: Duration,
    /// The longest that it takes.
    pub longest: Duration,
    /// What is used where no `lock_lease` is configured.
    pub default: Duration,
}

impl LeaseRange {
    /// From 1 s to 10 min, 20 s by default.
    pub const USUAL: LeaseRange = LeaseRange::new(Duration::from_secs(1), LONGEST_LOCK_LEASE);

    /// From `shortest` to `longest`, 20 s by default.
    pub const fn new(shortest: Duration, longest: Duration) -> Self {
        LeaseRange { shortest, longest, default: Duration::from_secs(20) }
    }

    /// The same range with another default.
    #[must_use]
    pub const fn with_default(mut self, default: Duration) -> Self {
        self.default = default;
        self
    }

    /// Whether it takes such a lease.
    pub fn contains(&self, lease: Duration) -> bool {
        (self.shortest..=self.longest).contains(&lease)
    }
}

impl fmt::Display for LeaseRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} to {:?}", self.shortest, self.longest)
    }
}

/// What a lock manager can promise, and no more.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockGuarantees {
    /// Which store, as part of a fence row: scheme and authority, without credentials (`sqlite:/srv/app/bus.db`).
    pub authority: String,
    /// Whom it keeps apart.
    pub reach: Reach,
    /// By whose clock a lease runs out, in a few words.
    pub expiry: &'static str,
    /// Whether fences grow across a restore of the store from a backup.
    pub monotonic_across_restore: bool,
    /// What a lock that is held outlives. One that the store forgets, by a power loss say, may be taken by somebody else
    /// while its holder does not know it yet: until the next renewal, and never for longer than a lease.
    pub durability: Durability,
    /// Whether [`LockManager::watch`] tells of a release.
    pub watch: bool,
    /// How often a candidate asks, where it waits for nothing better.
    pub poll: Duration,
    /// The leases that it takes.
    pub leases: LeaseRange,
}

impl LockGuarantees {
    /// Guarantees of a lock manager without a watch, with the [usual](LeaseRange::USUAL) leases and a poll every second,
    /// which does not say what its locks outlive.
    pub fn new(authority: impl Into<String>, reach: Reach, expiry: &'static str) -> Self {
        LockGuarantees {
            authority: authority.into(),
            reach,
            expiry,
            monotonic_across_restore: true,
            durability: Durability::Unknown,
            watch: false,
            poll: Duration::from_secs(1),
            leases: LeaseRange::USUAL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S24: the ids are what two releases of a program agree on. This list only ever grows.
    #[test]
    fn lock_ids_never_change() {
        let queue = Endpoint::queue("rebuild-cache").unwrap_or_else(|e| panic!("{e}"));
        let subscription =
            Endpoint::subscription("order-placed", "send-receipt").unwrap_or_else(|e| panic!("{e}"));
        let golden = [
            (LockId::of_endpoint(None, "default", &queue), "queue/rebuild-cache"),
            (LockId::of_endpoint(None, "billing", &queue), "billing/queue/rebuild-cache"),
            (LockId::of_endpoint(Some("shop"), "default", &queue), "shop/queue/rebuild-cache"),
            (LockId::of_endpoint(Some("shop"), "billing", &queue), "shop/billing/queue/rebuild-cache"),
            (LockId::of_endpoint(None, "default", &subscription), "subscription/order-placed/send-receipt"),
            (LockId::of(None, "default", "schedule", "nightly-import"), "schedule/nightly-import"),
        ];
        for (id, text) in golden {
            assert_eq!(id.as_str(), text);
        }
    }
}
