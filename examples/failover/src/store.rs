//! What is left in the store at the end, read by a client of its own and not through `bus`: a bus that loses
//! messages could as well lose count of them.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, flock};
use uuid::Uuid;

use crate::place::sqlite_file;

/// Messages that wait, are delayed, or are being worked on.
const LEFT: &str = "SELECT uuid FROM bus_message UNION ALL SELECT uuid FROM bus_delayed";
/// Messages that were given up.
const DEAD: &str = "SELECT uuid FROM bus_dead";
/// What is added to the name of the store's file to name the one that its writers lock.
const GATE: &str = ".lock";

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
        let ids = statement.query_map([], |row| row.get::<_, Vec<u8>>(0))?;
        ids.map(|id| Ok(Uuid::from_slice(&id?)?.to_string())).collect()
    }

    /// Waits until nobody writes to the store, and keeps it so until the answer is dropped.
    ///
    /// # Errors
    /// When the file that the writers lock is not there: then whoever is frozen might hold it.
    pub fn hold(&self) -> Result<Held> {
        let mut name = self.file.clone().into_os_string();
        name.push(GATE);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn store(directory: &tempfile::TempDir) -> Store {
        Store::at(&format!("sqlite://{}?synchronous=FULL", directory.path().join("bus.db").display()))
            .unwrap()
    }

    #[test]
    fn what_is_left_and_what_is_dead_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(&directory);
        assert!(store.left().is_err());
        let db = Connection::open(&store.file).unwrap();
        let ids = [1, 2, 3].map(Uuid::from_u128);
        for (table, id) in ["bus_message", "bus_delayed", "bus_dead"].into_iter().zip(ids) {
            db.execute_batch(&format!("CREATE TABLE {table} (uuid BLOB)")).unwrap();
            db.execute(&format!("INSERT INTO {table} VALUES (?1)"), [id.as_bytes()]).unwrap();
        }
        let [waiting, delayed, dead] = ids.map(|id| id.to_string());
        assert_eq!(store.left().unwrap(), [waiting, delayed]);
        assert_eq!(store.dead().unwrap(), [dead]);
    }

    #[test]
    fn a_store_is_held_by_one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(&directory);
        assert!(store.hold().is_err());
        let gate = File::create(directory.path().join("bus.db.lock")).unwrap();
        let held = store.hold().unwrap();
        assert!(gate.try_lock().is_err());
        drop(held);
        assert!(gate.try_lock().is_ok());
    }

    #[test]
    fn other_stores_are_refused() {
        assert!(Store::at("memory://").is_err());
    }
}
