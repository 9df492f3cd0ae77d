//! Fences: numbers that grow with every term of a singleton, kept beside its messages, so that a former holder's late
//! writes are refused by the store however long the holder slept.
//!
//! After M. Kleppmann, "How to do distributed locking" (2016): a lock whose lease can run out unseen protects only
//! together with a number that the protected store compares.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{BoxFuture, LockId};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::message::Endpoint;

/// A term's number: higher than that of every earlier term of the same lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Fence(u64);

impl Fence {
    /// From a number.
    pub const fn new(number: u64) -> Self {
        Fence(number)
    }

    /// The fence of a lock's next term: one more than the `last` one's, and at least the store's clock in µs, so that it
    /// grows across a restore from a backup too, which has forgotten the last ones.
    pub fn next(last: Option<Fence>, store_clock: Timestamp) -> Self {
        let clock = u64::try_from(store_clock.as_micros()).unwrap_or(0);
        let next = last.map_or(1, |last| last.get().saturating_add(1));
        Fence(next.max(clock))
    }

    /// As a number. Always fits into the positive half of a signed 64-bit column.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The term under which a message is sent: its endpoint's row must still have this fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceGuard {
    /// The singleton's endpoint.
    pub endpoint: Arc<Endpoint>,
    /// Its fence.
    pub fence: Fence,
}

/// A new holder's claim to an endpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FenceClaim {
    /// The singleton's endpoint.
    pub endpoint: Arc<Endpoint>,
    /// The lock it is held under, with the lock manager's scheme and authority: `sqlite:/srv/bus.db#queue/import`.
    pub lock: String,
    /// The fence won with the lock.
    pub fence: Fence,
    /// How long the lock lasts unless renewed.
    pub lock_lease: Duration,
}

impl FenceClaim {
    /// A claim to `endpoint` with the fence of `lock_id` at the lock manager `authority`.
    pub fn new(
        endpoint: Arc<Endpoint>,
        authority: &str,
        lock_id: &LockId,
        fence: Fence,
        lock_lease: Duration,
    ) -> Self {
        FenceClaim { endpoint, lock: format!("{authority}#{lock_id}"), fence, lock_lease }
    }
}

/// What became of a [`FenceClaim`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Raised {
    /// The row has our fence, and nobody's lower one can write any more.
    Raised,
    /// The row has a higher fence: we are not the holder any more.
    Outdated {
        /// The fence that is in force.
        in_force: Fence,
    },
    /// The row belongs to another lock, which was in use until a moment ago: ask again after this time.
    OtherLock {
        /// The lock that it belongs to.
        lock: String,
        /// How long that lock still binds the row.
        free_in: Duration,
    },
}

/// A singleton endpoint's row as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FenceRow {
    /// The lock that it belongs to.
    pub lock: String,
    /// The fence in force.
    pub fence: Fence,
    /// How long the row is still bound to that lock.
    pub bound_for: Duration,
}

impl FenceRow {
    /// A row.
    pub fn new(lock: impl Into<String>, fence: Fence, bound_for: Duration) -> Self {
        FenceRow { lock: lock.into(), fence, bound_for }
    }
}

/// Keeps a row per singleton endpoint in the message store: `{ endpoint, lock, fence, until }`.
pub trait Fencing: Send + Sync + 'static {
    /// Raises the row to the claim's fence: inserts it, or updates it if the fence is higher and the row either belongs
    /// to the same lock or its `until` has passed. Raising again to the same fence under the same lock answers
    /// `Raised`, so that a lost answer can be asked for again.
    fn raise(&self, claim: FenceClaim) -> BoxFuture<'_, Result<Raised>>;

    /// The row of an endpoint; a plain processor on an endpoint with a bound row does not start.
    fn row<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<FenceRow>>>;

    /// Within the user's own transaction on the message store: verifies and locks the row until that transaction ends,
    /// so that what is committed with it was committed by the holder.
    ///
    /// # Errors
    /// [`ErrorKind::TermLost`](crate::ErrorKind::TermLost) if another fence is in force;
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the store takes no transactions from outside.
    fn check_in<'a>(
        &'a self,
        transaction: &'a mut dyn SqlExecutor,
        guard: &'a FenceGuard,
    ) -> BoxFuture<'a, Result<()>>;
}

/// A value for an SQL parameter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SqlValue {
    /// A signed 64-bit integer.
    Integer(i64),
    /// A text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// Any database connection or transaction of the user's that can run one statement.
///
/// Implemented for `rusqlite::Connection` (and what derefs to it) with the feature `sqlite`; for another driver it is
/// this one method.
pub trait SqlExecutor: Send {
    /// Runs a statement with the parameters `?1`, `?2`, … (or the store's own form) and answers how many rows it
    /// changed.
    fn execute<'a>(&'a mut self, sql: &'a str, params: &'a [SqlValue]) -> BoxFuture<'a, Result<u64>>;
}
