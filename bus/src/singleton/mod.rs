#![doc = include_str!("../../docs/singletons.md")]
//!
//! # How it is built
//!
//! * [`protocol`] and [`machine`]: the protocol, as a pure state machine. No I/O, clock or task in there, ever: the very
//!   code that runs in a host is put through tens of thousands of simulated disasters in
//!   `tests/tests/singleton_simulation`.
//! * [`Keeper`]: the thread in which locks are kept, and the driver of a machine in it.
//! * [`candidate`]: starts and stops a run without knowing what it is.
//! * [`Term`]: what a run knows about its lock, decided by the clock on whatever thread asks.
//! * [`LockTiming`]: the times, and the rule that they have to keep.
//!
//! What may be changed: everything that the simulation accepts and that its mutations are still caught by.

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
pub(crate) use timing::LONGEST_START_PAUSE;
pub use timing::{DEFAULT_LOCK_LEASE, LONGEST_LOCK_LEASE, LockTiming, RENEWAL_TRIES, SHORTEST_LOCK_LEASE};
