//! The distributed singleton: win, hold, doubt, lose and hand over a lock, so that what it guards never runs twice.
//!
//! The protocol is a pure state machine ([`protocol`] is its vocabulary, [`machine`] its rules), and the driver
//! around it is thin. The split exists for one reason: the very code that runs in a host is put through tens of
//! thousands of simulated disasters in `tests/tests/singleton_simulation.rs`.

mod candidate;
mod hold;
mod holding;
mod keeper;
pub mod machine;
pub mod protocol;
mod term;
mod timing;

pub use candidate::{HandOver, Lock, OVERRUN_EXIT_CODE, OnOverrun, Stop, candidate};
pub use keeper::Keeper;
pub use machine::Standing;
pub use term::Term;
pub use timing::{DEFAULT_LOCK_LEASE, LONGEST_LOCK_LEASE, LockTiming, RENEWAL_TRIES, SHORTEST_LOCK_LEASE};
