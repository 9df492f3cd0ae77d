//! The processes: starts them, starts those again that were killed or stopped, and lets them go at the end.

use std::collections::{HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::args::Part;

/// What became of a process.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) pid: u32,
    /// What is wrong about it, if anything.
    pub(super) trouble: Option<String>,
}

/// All processes of the experiment but the driver.
#[derive(Debug)]
pub(super) struct Fleet {
    part: Part,
    /// What stands in the environment of every process, besides the driver's own.
    environment: Vec<(&'static str, String)>,
    hosts: HashMap<u32, Child>,
    producer: Option<Child>,
    /// Those that were sent SIGKILL, those that were sent SIGTERM.
    killed: HashSet<u32>,
    told: HashSet<u32>,
}

impl Fleet {
    /// A fleet without processes.
    pub(super) fn new(part: Part, environment: Vec<(&'static str, String)>) -> Self {
        let (hosts, killed, told) = (HashMap::new(), HashSet::new(), HashSet::new());
        Self { part, environment, hosts, producer: None, killed, told }
    }

    /// Starts one more host, and gives its id.
    pub(super) fn start_host(&mut self) -> Result<u32> {
        // The end of its standard input tells a host to stop: that is no fault, and it works without a driver too.
        let child = self.spawn("host", Stdio::piped())?;
        let pid = child.id();
        self.hosts.insert(pid, child);
        Ok(pid)
    }

    /// Starts the process that sends the messages, and gives its id.
    pub(super) fn start_producer(&mut self) -> Result<u32> {
        let child = self.spawn("produce", Stdio::null())?;
        Ok(self.producer.insert(child).id())
    }

    fn spawn(&self, role: &str, input: Stdio) -> Result<Child> {
        let log = self.part.history.join(format!("{role}.log"));
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        Command::new(std::env::current_exe()?)
            .arg(role)
            .args(self.part.arguments())
            .envs(self.environment.clone())
            .stdin(input)
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start a process in the role {role}"))
    }

    /// Sends a signal to a host.
    pub(super) fn signal(&mut self, pid: u32, signal: Signal) -> Result<()> {
        match signal {
            Signal::KILL => self.killed.insert(pid),
            Signal::TERM => self.told.insert(pid),
            _ => false,
        };
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no process id")?;
        kill_process(raw, signal).with_context(|| format!("cannot send {signal:?} to {pid}"))
    }

    /// The hosts that have ended since the last time; they are no longer part of the fleet.
    pub(super) fn take_ended(&mut self) -> Result<Vec<Ended>> {
        let mut ended = Vec::new();
        for (pid, child) in &mut self.hosts {
            if let Some(status) = child.try_wait()? {
                ended.push((*pid, status));
            }
        }
        for (pid, _) in &ended {
            self.hosts.remove(pid);
        }
        Ok(ended.into_iter().map(|(pid, status)| self.judge(pid, status)).collect())
    }

    fn judge(&self, pid: u32, status: ExitStatus) -> Ended {
        let as_told = self.killed.contains(&pid) || self.told.contains(&pid) && status.success();
        Ended { pid, trouble: (!as_told).then(|| format!("host {pid} ended by itself: {status}")) }
    }

    /// Whether a host is still there.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.hosts.contains_key(&pid)
    }

    /// The ids of the hosts.
    pub(super) fn hosts(&self) -> Vec<u32> {
        self.hosts.keys().copied().collect()
    }

    /// Whether everything was sent; an error when the producer failed.
    pub(super) fn producer_is_done(&mut self) -> Result<bool> {
        let Some(producer) = &mut self.producer else { return Ok(true) };
        match producer.try_wait()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => anyhow::bail!("the producer ended with {status}"),
        }
    }

    /// Tells all hosts to stop, without a signal.
    pub(super) fn let_go(&mut self) {
        for (pid, child) in &mut self.hosts {
            drop(child.stdin.take());
            self.told.insert(*pid);
        }
    }

    /// Ends the producer, if it is still at work.
    pub(super) fn end_producer(&mut self) {
        if let Some(mut producer) = self.producer.take() {
            let _ = producer.kill();
            let _ = producer.wait();
        }
    }
}

/// No process outlives the driver, whatever became of it.
impl Drop for Fleet {
    fn drop(&mut self) {
        self.end_producer();
        for child in self.hosts.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether every thread of a process is stopped.
pub(super) fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| state_of(&thread.path()) == Some('T'))
}

fn state_of(thread: &Path) -> Option<char> {
    let stat: PathBuf = thread.join("stat");
    // The name of the program stands in brackets and may hold anything; the state follows it.
    let text = fs::read_to_string(stat).ok()?;
    text.rsplit_once(')')?.1.trim_start().chars().next()
}
