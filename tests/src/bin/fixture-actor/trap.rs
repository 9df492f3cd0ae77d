//! A process that freezes itself in the middle of a commit.

use std::path::PathBuf;

use rustix::process::{Signal, getpid, kill_process};

/// From now on the first commit that finds the file `BUS_TEST_TRAP` stops this process, with the store's lock in its
/// hand, and takes the file away, so that it happens once.
pub(crate) fn set() {
    let Some(trap) = std::env::var_os("BUS_TEST_TRAP").map(PathBuf::from) else { return };
    let hook = move || {
        if std::fs::remove_file(&trap).is_ok() {
            kill_process(getpid(), Signal::STOP).expect("a process can stop itself");
        }
    };
    bus::backend::sqlite::failpoint::before_commit(hook).expect("there is no other hook");
}
