//! Three processes, one singleton, and a driver that kills, freezes and stops whoever holds it.
//!
//! `README.md` says what this proves and how to read its result. The parts:
//!
//! * [`history`]: what each process did, line by line.
//! * [`checker`]: judges the histories; it knows nothing of `bus`.
//! * [`register`]: the effect of a run, guarded by the fence.
//! * [`work`]: what the messages ask for.

#![cfg(target_os = "linux")]

pub mod checker;
pub mod history;
pub mod register;
pub mod work;
