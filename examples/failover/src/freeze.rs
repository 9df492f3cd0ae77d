//! The fail point that freezes a process inside a commit: the driver arms it, the process springs it.
//!
//! Only the process itself can stop between the first and the last write of a transaction. It does so at its
//! first commit inside a run, and leaves the time behind, which goes into the driver's history.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use crate::history;

/// Tells the process `pid` to stop itself at its next commit inside a run.
///
/// # Errors
/// When the directory cannot be written.
pub fn arm(directory: &Path, pid: u32) -> io::Result<()> {
    fs::write(armed(directory, pid), "")
}

/// When the process `pid` stopped itself, if it did.
pub fn sprung(directory: &Path, pid: u32) -> Option<u64> {
    fs::read_to_string(stamp(directory, pid)).ok()?.parse().ok()
}

/// Forgets what was armed and sprung: only then does a process go on that is thawed.
pub fn disarm(directory: &Path, pid: u32) {
    let _ = fs::remove_file(armed(directory, pid));
    let _ = fs::remove_file(stamp(directory, pid));
}

fn armed(directory: &Path, pid: u32) -> PathBuf {
    directory.join(format!("freeze-{pid}.armed"))
}

fn stamp(directory: &Path, pid: u32) -> PathBuf {
    directory.join(format!("freeze-{pid}.sprung"))
}

/// The process's side.
#[derive(Debug)]
pub struct FailPoint {
    directory: PathBuf,
    exposed: AtomicBool,
}

impl FailPoint {
    /// A fail point that is armed through files in `directory`.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), exposed: AtomicBool::new(false) }
    }

    /// From now to the drop of the answer, an armed fail point may spring.
    pub fn expose(&self) -> Exposed<'_> {
        self.exposed.store(true, Ordering::SeqCst);
        Exposed(self)
    }

    /// To be called inside each commit. Returns after the thaw.
    pub fn in_commit(&self) {
        let pid = std::process::id();
        if !self.exposed.load(Ordering::SeqCst) || fs::remove_file(armed(&self.directory, pid)).is_err() {
            return;
        }
        let stamp = stamp(&self.directory, pid);
        let written = fs::write(&stamp, history::now().to_string());
        written.and_then(|()| Ok(kill_process(getpid(), Signal::STOP)?)).expect("a process can stop itself");
        // The signal may reach another thread first, and this one could commit before it is stopped as well.
        while stamp.exists() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// While it lives, the fail point may spring.
#[derive(Debug)]
pub struct Exposed<'a>(&'a FailPoint);

impl Drop for Exposed<'_> {
    fn drop(&mut self) {
        self.0.exposed.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_exposed_and_armed_process_is_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let (directory, pid) = (directory.path(), std::process::id());
        let point = FailPoint::new(directory);
        point.in_commit();
        arm(directory, pid).unwrap();
        point.in_commit();
        drop(point.expose());
        point.in_commit();
        assert!(armed(directory, pid).exists());
        assert_eq!(sprung(directory, pid), None);
        disarm(directory, pid);
        let _exposed = point.expose();
        point.in_commit();
        assert_eq!(sprung(directory, pid), None);
    }
}
