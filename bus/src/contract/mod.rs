//! What a backend implements: traits and option structs only.
//!
//! Everything is object-safe, asynchronous by boxed futures and batched; each batch is answered **item by item**, in
//! the order of its items. A backend maps its driver's errors to [`Error`](crate::Error) in one place, gives every
//! call to its store a deadline, and passes the suites of [`conformance`](crate) before it is called one.

mod fence;
mod inspect;
mod lock;
mod pulse;
mod readers;
mod scheme;
mod transport;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

pub use fence::{Fence, FenceClaim, FenceGuard, FenceRow, Fencing, Raised, SqlExecutor, SqlValue};
pub use inspect::{DeadLetter, Depth, Dropped, Inspect, PutBack};
pub use lock::{
    Ended, Grant, LARGEST_NOTE, LONGEST_LOCK_LEASE, Lease, LeaseRange, LockGuarantees, LockId, LockManager,
    LockRecord, Owner, Renewal, check_note, try_time,
};
pub use pulse::{Beat, Pulse};
pub use readers::{
    ATTENDED_EVERY, Attended, DroppedSubscription, READ_AGAIN_WITHIN, Readers, Reading, UNATTENDED_AFTER,
};
pub use scheme::{OpenLocks, OpenOptions, OpenTransport, Scheme, StoreUrl};
pub use transport::{
    Capabilities, Consumer, ConsumerSpec, Delay, Due, Durability, Enqueue, Guarantees, Outgoing, Placed,
    Sender, Settlement, Transport, fresh_claim, item_by_item,
};

/// A boxed future that can be sent between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How far a lock manager's exclusion, or a transport's messages, reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// One process.
    Process,
    /// All processes of one machine.
    Machine,
    /// All machines that can connect to the store.
    Fleet,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reach::Process => "process",
            Reach::Machine => "machine",
            Reach::Fleet => "fleet",
        })
    }
}
