//! Three processes, one singleton, and a driver that kills, freezes and stops whoever holds it.
//!
//! `README.md` says what this proves and how to read its result. The parts:
//!
//! * [`history`]: what each process did, line by line; [`checker`]: judges it, and knows nothing of `bus`.
//! * [`work`]: what the messages ask for; [`register`]: the effect of a run, guarded by the fence.
//! * [`host`]: a process that competes for the singleton, with its [`lab`], and the [`layer`] that listens to the
//!   bus; [`produce`]: the process that sends.
//! * [`driver`]: starts the processes, lets the faults strike, and reads the [`store`] at the end;
//!   [`freeze`]: the fail point through which a process is frozen inside a commit; [`gate`]: how one is not.
//! * [`args`] and [`place`]: the command line, and the files of one experiment; [`stores`]: what follows from the kind of
//!   a store; [`servers`]: those that are started for one.

#![cfg(target_os = "linux")]

pub mod args;
pub mod checker;
pub mod driver;
pub mod freeze;
pub mod gate;
pub mod history;
pub mod host;
pub mod lab;
pub mod layer;
pub mod place;
pub mod produce;
pub mod register;
pub mod servers;
pub mod store;
pub mod stores;
pub mod work;
