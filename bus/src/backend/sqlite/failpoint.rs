//! A fail point for demonstrations and tests: the process freezes itself in the middle of a commit.

use std::path::Path;

/// Stops this process (SIGSTOP) if `BUS_FAILPOINT_COMMIT` names a file that exists. The file is removed first, so that
/// it happens once. Called after a singleton's settlement has been written and before its commit: with the gate passed
/// and SQLite's write lock held.
pub fn before_commit() {
    let Some(name) = std::env::var_os("BUS_FAILPOINT_COMMIT") else { return };
    if std::fs::remove_file(Path::new(&name)).is_err() {
        return;
    }
    tracing::warn!("fail point: frozen inside a commit");
    if let Err(e) = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP) {
        tracing::error!(error = %e, "fail point: cannot stop this process");
    }
}
