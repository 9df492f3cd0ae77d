//! The experiment itself, small enough for every build: one fault of each kind, in both places.

#![cfg(target_os = "linux")]

use std::process::Command;

#[track_caller]
fn passes(options: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_failover"))
        .args(["--messages", "600", "--lease", "2s", "--kills", "1", "--freezes", "1", "--terms", "1"])
        .arg("--history")
        .arg(directory.path())
        .args(options)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let log = std::fs::read_to_string(directory.path().join("host.log")).unwrap_or_default();
    assert!(output.status.success(), "{said}\n{}\n{log}", String::from_utf8_lossy(&output.stderr));
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("overlaps=0 lost=0 dead=0 stale_accepted=0 stale_attempts="), "{last}");
    assert!(last.ends_with("kills_in_run=1 freezes_in_run=1"), "{last}");
}

#[test]
fn the_singleton_is_killed_frozen_in_its_handler_and_stopped() {
    passes(&[]);
}

#[test]
fn the_singleton_is_frozen_in_a_commit() {
    passes(&["--freeze-in", "commit"]);
}

/// The lock in a directory, where the messages are not.
#[test]
fn the_lock_is_in_a_directory() {
    let locks = tempfile::tempdir().unwrap();
    passes(&["--locks", &format!("file://{}", locks.path().join("locks").display())]);
}
