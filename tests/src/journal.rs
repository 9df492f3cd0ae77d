//! What processes write down: one JSON line per event, each with one `write`, so that a killed process leaves whole
//! lines.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Where a fixture process writes its journal.
pub const VARIABLE: &str = "BUS_TEST_JOURNAL";

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When, in nanoseconds of the clock that all processes of the machine share.
    pub t: u64,
    /// By which process.
    pub p: u32,
    /// What happened.
    pub e: String,
    /// To which endpoint's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The number of the message's task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub m: Option<u64>,
    /// The message's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The singleton's fence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// How often the message had been claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub say: Option<String>,
}

impl Entry {
    /// An event that happens now, in this process.
    pub fn now(e: impl Into<String>) -> Entry {
        Entry { t: now(), p: std::process::id(), e: e.into(), ..Entry::default() }
    }
}

/// Nanoseconds of the clock that all processes of the machine share.
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// A journal to write to. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Journal {
    file: Arc<File>,
}

impl Journal {
    /// Appends to the journal at `path`.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Journal {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Journal { file: Arc::new(file.unwrap_or_else(|e| panic!("{}: {e}", path.display()))) }
    }

    /// The journal of a fixture process.
    ///
    /// # Panics
    /// If the process was given none.
    pub fn of_this_process() -> Journal {
        let path = std::env::var_os(VARIABLE).unwrap_or_else(|| panic!("{VARIABLE} is not set"));
        Journal::open(Path::new(&path))
    }

    /// Writes an event down.
    ///
    /// # Panics
    /// If the disk is full.
    pub fn write(&self, entry: &Entry) {
        let mut line = serde_json::to_string(entry).expect("an entry is JSON");
        line.push('\n');
        (&*self.file).write_all(line.as_bytes()).expect("a journal can be written to");
    }
}

/// All entries of a journal so far; a line that is being written is left for the next time.
///
/// # Panics
/// If something else stands in it.
pub fn read(path: &Path) -> Vec<Entry> {
    let Ok(text) = std::fs::read_to_string(path) else { return Vec::new() };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{}: {e}: {line}", path.display())))
        .collect()
}
