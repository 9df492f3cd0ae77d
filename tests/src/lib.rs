//! What the tests of this package share: fixture processes, what they do and what they say, and a view of the store
//! that shares no code with `bus`.
//!
//! * [`task`]: messages that say what their handler is to do.
//! * [`journal`]: what processes write down, one line per event.
//! * [`runs`]: the runs in a journal, and whether two of them overlap.
//! * [`site`]: a directory with a store and journals, and the processes that work in it.
//! * [`store`]: what lies in a SQLite store, read by rusqlite.
//! * [`wait`]: conditions awaited with a deadline.

pub mod journal;
pub mod runs;
pub mod site;
pub mod store;
pub mod task;
pub mod wait;
