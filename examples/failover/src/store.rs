//! What is left in the store at the end, read by a client of its own and not through `bus`: a bus that loses
//! messages could as well lose count of them.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, flock};

use crate::place::sqlite_file;

/// Messages that wait, are delayed, or are being worked on.
const LEFT: &str = "SELECT message_id FROM messages UNION ALL SELECT message_id FROM delayed";
/// Messages that were given up.
const DEAD: &str = "SELECT message_id FROM dead_letters";

/// A reader of the store.
#[derive(Debug)]
pub struct Store {
    file: PathBuf,
}

impl Store {
    /// The store at a URL.
    ///
    /// # Errors
    /// When this example cannot read such a store.
    pub fn at(url: &str) -> Result<Self> {
        let file = sqlite_file(url).with_context(|| format!("{url}: only sqlite:// can be read so far"))?;
        Ok(Self { file })
    }

    /// The ids of the messages that still wait.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn left(&self) -> Result<Vec<String>> {
        self.ids(LEFT)
    }

    /// The ids of the dead letters.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn dead(&self) -> Result<Vec<String>> {
        self.ids(DEAD)
    }

    fn ids(&self, query: &str) -> Result<Vec<String>> {
        let db = Connection::open_with_flags(&self.file, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .with_context(|| format!("cannot open {}", self.file.display()))?;
        let mut statement = db.prepare(query)?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Waits until nobody writes to the store, and keeps it so until the answer is dropped.
    ///
    /// # Errors
    /// When the file that the writers lock is not there: then whoever is frozen might hold it.
    pub fn hold(&self) -> Result<Held> {
        let mut name = self.file.clone().into_os_string();
        name.push(".lock");
        let file = File::open(&name).with_context(|| format!("cannot open {}", name.display()))?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(Held { _file: file })
    }
}

/// While it lives, nobody writes to the store.
#[derive(Debug)]
pub struct Held {
    /// Closing the file is what frees the lock.
    _file: File,
}
