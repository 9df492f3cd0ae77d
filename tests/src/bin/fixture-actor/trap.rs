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
            // Another thread may be the one to take the signal, and until it does this one would go on to commit.
            while is_stop_pending() {
                std::thread::yield_now();
            }
        }
    };
    bus::backend::sqlite::failpoint::before_commit(hook).expect("there is no other hook");
}

/// Whether the stop has been sent and no thread has taken it yet. Once one has, all of them are stopped.
fn is_stop_pending() -> bool {
    const STOP: u64 = 1 << (19 - 1);
    let status = std::fs::read_to_string("/proc/self/status").expect("a process can read its own state");
    let pending =
        status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).expect("a state tells its signals");
    u64::from_str_radix(pending.trim(), 16).expect("a mask of signals") & STOP != 0
}
