//! The distributed singleton: win, hold, doubt, lose and hand over a lock, so that what it guards never runs twice.
//!
//! The protocol is a pure state machine ([`protocol`] is its vocabulary, [`machine`] its rules), and the driver
//! around it is thin. The split exists for one reason: the very code that runs in a host is put through tens of
//! thousands of simulated disasters in `tests/tests/singleton_simulation.rs`.

mod holding;
pub mod machine;
pub mod protocol;
pub mod timing;

pub use timing::LockTiming;
