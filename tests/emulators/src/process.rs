//! A child process that can be killed and frozen, and that ends with the one that started it.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::error::{Doing, Error, Result};

/// Longer than anything takes to start, also on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than the last connections are kept open.
const PATIENCE_WITH_ITS_END: Duration = Duration::from_secs(10);
/// How often is looked whether it has started, or ended.
const LOOK: Duration = Duration::from_millis(10);

/// Kills the process whose id it is given as soon as its standard input ends.
const WATCHDOG: &str = "read -r _; kill -KILL \"$0\"";

/// The process. Killed when dropped.
///
/// Beside it lives a shell whose standard input is a pipe that only we hold. When we are gone, however that came, the
/// shell kills it, also if it is frozen at that time. Both are process groups of their own, so that what is meant for
/// us, such as Ctrl-C, reaches them through our end only.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    watchdog: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it; what it says on both outputs goes to `log`.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Process> {
        let file = File::create(log).doing(format_args!("cannot write {}", log.display()))?;
        let errors = file.try_clone().doing(format_args!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors).process_group(0);
        let mut child =
            command.spawn().doing(format_args!("cannot start {}", command.get_program().display()))?;
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, &child.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        match watchdog {
            Ok(watchdog) => Ok(Process { child, watchdog, log: log.to_owned() }),
            Err(error) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(error).doing("cannot start sh, to watch over a process")
            }
        }
    }

    /// How it has ended, if it has.
    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let ended = self.child.try_wait().doing("a child cannot be waited for")?;
        if ended.is_some() {
            self.dismiss_watchdog()?;
        }
        Ok(ended)
    }

    /// From here on, the id of the child may become that of another process.
    fn dismiss_watchdog(&mut self) -> Result<()> {
        let dismissed = self.watchdog.kill().and_then(|()| self.watchdog.wait());
        dismissed.doing("a watchdog cannot be ended").map(drop)
    }

    /// Waits until what it has said is enough for `found`.
    pub(crate) fn until_said<T>(&mut self, what: &str, found: impl Fn(&str) -> Option<T>) -> Result<T> {
        let log = self.log.clone();
        until_said(&log, what, found, || self.ended())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, and waits until it is gone. Nothing happens to one that is gone already.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.dismiss_watchdog()?;
        self.child.kill().doing("a child cannot be killed")?;
        self.child.wait().doing("a child cannot be waited for").map(drop)
    }

    /// Asks it to end, and waits until it is gone; one that does not listen is killed.
    pub(crate) fn end(&mut self) -> Result<()> {
        let is_asked = self.signal(Signal::TERM).is_ok();
        let started = Instant::now();
        while is_asked && started.elapsed() < PATIENCE_WITH_ITS_END {
            if self.ended()?.is_some() {
                return Ok(());
            }
            thread::sleep(LOOK);
        }
        self.kill()
    }

    /// Stops it, and waits until it has stopped.
    pub(crate) fn freeze(&mut self) -> Result<()> {
        let pid = self.signal(Signal::STOP)?;
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), stopped).doing("a child cannot be waited for").map(drop)
    }

    /// Lets it go on.
    pub(crate) fn thaw(&mut self) -> Result<()> {
        self.signal(Signal::CONT).map(drop)
    }

    fn signal(&mut self, signal: Signal) -> Result<Pid> {
        if let Some(status) = self.ended()? {
            return Err(Error::failed(format!("no {signal:?} for a process that has ended with {status}")));
        }
        // Not waited for yet, so that its id still belongs to it.
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).doing(format_args!("{signal:?} cannot be sent"))?;
        Ok(pid)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A frozen process can be killed too; one that is gone already is no trouble.
        let _ = self.kill();
    }
}

/// Waits until what a process has written to `log` is enough for `found`.
pub(crate) fn until_said<T>(
    log: &Path,
    what: &str,
    found: impl Fn(&str) -> Option<T>,
    mut ended: impl FnMut() -> Result<Option<ExitStatus>>,
) -> Result<T> {
    let started = Instant::now();
    loop {
        // In this order: what it said last counts, although it has ended.
        let ended = ended()?;
        let said = fs::read_to_string(log).unwrap_or_default();
        if let Some(found) = found(&said) {
            return Ok(found);
        }
        if let Some(status) = ended {
            return Err(Error::failed(format!("{what}: it ended with {status} and said: {said}")));
        }
        if started.elapsed() > PATIENCE {
            return Err(Error::failed(format!("{what}: not within {PATIENCE:?}; it said: {said}")));
        }
        thread::sleep(LOOK);
    }
}
