//! What a process did, one JSON line per event, so that a checker can judge the whole fleet afterwards.
//!
//! A history has to survive `kill -9` and has to be comparable between processes. Hence each event is one
//! `write` to a file opened for appending (no buffer to lose, at most the last line is torn), and each time
//! is the raw `CLOCK_MONOTONIC_RAW`: common to all processes of a machine, and never set or slewed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The ending of the names of history files.
pub const EXTENSION: &str = "jsonl";

/// Everything that can be found in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// The store has confirmed a message.
    #[serde(rename = "send.ok")]
    SendOk,
    /// A handler began to work on a message.
    #[serde(rename = "run.start")]
    RunStart,
    /// A handler came to its end, well or not.
    #[serde(rename = "run.end")]
    RunEnd,
    /// A handler was dropped before its end.
    #[serde(rename = "run.cut")]
    RunCut,
    /// The register accepted the effect of a run.
    #[serde(rename = "effect.ok")]
    EffectOk,
    /// The register, or before it the term's own clock, refused the effect of a run.
    #[serde(rename = "effect.refused")]
    EffectRefused,
    /// The store confirmed the outcome of a message.
    #[serde(rename = "settle.ok")]
    SettleOk,
    /// The store refused the outcome of a message: the claim or the fence was no longer the current one.
    #[serde(rename = "settle.refused")]
    SettleRefused,
    /// The lock was won, and was still owned when this was written.
    #[serde(rename = "lock.acquired")]
    LockAcquired,
    /// The lock was lost.
    #[serde(rename = "lock.lost")]
    LockLost,
    /// The lock was given back.
    #[serde(rename = "lock.released")]
    LockReleased,
    /// The process is about to end by itself.
    #[serde(rename = "exit")]
    Exit,
    /// The driver is about to send SIGKILL.
    #[serde(rename = "kill")]
    Kill,
    /// The driver is about to send SIGSTOP, or a fail point was about to.
    #[serde(rename = "freeze")]
    Freeze,
    /// The driver is about to send SIGCONT.
    #[serde(rename = "thaw")]
    Thaw,
    /// The driver is about to send SIGTERM.
    #[serde(rename = "term")]
    Term,
    /// At the end: the register's entry for a message.
    #[serde(rename = "settled_by")]
    SettledBy,
    /// At the end: a message that still waits in the store.
    #[serde(rename = "left")]
    Left,
    /// At the end: a message among the dead letters.
    #[serde(rename = "dead")]
    Dead,
}

/// One line of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds of `CLOCK_MONOTONIC_RAW`.
    pub t: u64,
    /// The process that wrote it.
    pub p: u32,
    /// What happened.
    pub e: Kind,
    /// The id of the message concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub m: Option<String>,
    /// The fence of the term concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The process that a signal was meant for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim: Option<u32>,
}

impl Event {
    /// Something that this process does now.
    pub fn now(e: Kind) -> Self {
        Self { t: now(), p: std::process::id(), e, m: None, fence: None, victim: None }
    }

    /// Moves the event to the moment at which it really happened.
    #[must_use]
    pub fn at(self, t: u64) -> Self {
        Self { t, ..self }
    }

    /// Names the message.
    #[must_use]
    pub fn message(self, m: impl Into<String>) -> Self {
        Self { m: Some(m.into()), ..self }
    }

    /// Names the fence.
    #[must_use]
    pub fn fence(self, fence: u64) -> Self {
        Self { fence: Some(fence), ..self }
    }

    /// Names the process that the signal is meant for.
    #[must_use]
    pub fn victim(self, pid: u32) -> Self {
        Self { victim: Some(pid), ..self }
    }
}

/// Nanoseconds of the clock that all histories share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::MonotonicRaw);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Where the process `pid` in the role of `role` writes its history.
pub fn file_of(directory: &Path, role: &str, pid: u32) -> PathBuf {
    directory.join(format!("{role}-{pid}.{EXTENSION}"))
}

/// The history file of this process.
#[derive(Debug)]
pub struct History {
    file: File,
}

impl History {
    /// Opens this process's own file below `directory`.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn open(directory: &Path, role: &str) -> io::Result<Self> {
        let path = file_of(directory, role, std::process::id());
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file })
    }

    /// Appends one event. A history with a hole proves nothing, so that a failure here ends the process.
    #[allow(clippy::print_stderr, reason = "the last words of a process that is about to abort")]
    pub fn write(&self, event: &Event) {
        if let Err(error) = self.try_write(event) {
            eprintln!("cannot write the history: {error}");
            std::process::abort();
        }
    }

    fn try_write(&self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        // Not `write_all`: a line in two pieces could be torn in the middle, or mixed with another one.
        match (&self.file).write(&line)? {
            written if written == line.len() => Ok(()),
            written => Err(io::Error::other(format!("only {written} of {} bytes were written", line.len()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_with_only_the_fields_that_apply() {
        let directory = tempfile::tempdir().unwrap();
        let history = History::open(directory.path(), "host").unwrap();
        history.write(&Event::now(Kind::RunStart).at(7).message("a").fence(3));
        history.write(&Event::now(Kind::Exit).at(8));
        let pid = std::process::id();
        let text = std::fs::read_to_string(file_of(directory.path(), "host", pid)).unwrap();
        assert_eq!(
            text,
            format!(
                "{{\"t\":7,\"p\":{pid},\"e\":\"run.start\",\"m\":\"a\",\"fence\":3}}\n\
                 {{\"t\":8,\"p\":{pid},\"e\":\"exit\"}}\n"
            )
        );
    }

    #[test]
    fn the_clock_goes_forward() {
        let first = now();
        assert!(now() >= first);
    }
}
