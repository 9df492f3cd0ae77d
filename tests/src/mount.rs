//! Small disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::skip::not_run;

/// Set for the second try of a test, in namespaces of its own.
const INSIDE: &str = "BUS_TEST_NAMESPACE";

/// Runs a test that mounts: here, if we may; else once more, in namespaces of its own, where we may. `name` is the test's,
/// as the runner knows it.
///
/// # Panics
/// If the test fails.
pub fn where_we_may_mount<F: Future<Output = ()>>(name: &str, test: impl FnOnce() -> F) {
    if rustix::process::geteuid().is_root() || std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.expect("a runtime").block_on(test());
    }
    let Some((program, arguments)) = WAYS.into_iter().find(|way| leads_somewhere(*way)) else {
        return not_run("neither root nor allowed to become it (unshare -rm, sudo)");
    };
    let mut inside = Command::new(program);
    inside.args(arguments).arg(std::env::current_exe().expect("this program has a path"));
    inside.args([name, "--exact", "--nocapture"]).env(INSIDE, "1");
    assert!(inside.status().expect("it can be started").success(), "the test failed: see above");
}

/// How to run a program that may mount, in order of preference.
const WAYS: [(&str, &[&str]); 2] = [("unshare", &["-rm"]), ("sudo", &["-nE", "unshare", "-m"])];

fn leads_somewhere((program, arguments): (&str, &[&str])) -> bool {
    let output = Command::new(program).args(arguments).arg("true").output();
    output.is_ok_and(|output| output.status.success())
}

/// A disk in memory, of its own size. Unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// Mounts one of so many MiB on a new directory.
    ///
    /// # Panics
    /// If that cannot be done.
    pub fn mount(at: PathBuf, mib: u32) -> SmallDisk {
        fs::create_dir(&at).expect("a directory");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"]).arg(&at));
        SmallDisk { at }
    }

    /// Allows reading alone, if nobody has a file open.
    ///
    /// # Panics
    /// If somebody has.
    pub fn make_read_only(&self) {
        run(Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&self.at));
    }

    /// Writes a file that leaves no room.
    ///
    /// # Panics
    /// If there was room without end.
    pub fn fill(&self, name: &str) -> PathBuf {
        use std::io::Write;
        let path = self.at.join(name);
        let mut file = fs::File::create(&path).expect("a file");
        let full = (0..1_000_000).find_map(|_| file.write_all(&[0; 4096]).err());
        assert_eq!(full.map(|e| e.kind()), Some(std::io::ErrorKind::StorageFull));
        path
    }

    /// How many bytes are free.
    ///
    /// # Panics
    /// If that cannot be asked.
    pub fn free(&self) -> u64 {
        let disk = rustix::fs::statvfs(&self.at).expect("a disk can be asked");
        disk.f_bavail * disk.f_frsize
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A process that was not waited for may still have a file open.
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
