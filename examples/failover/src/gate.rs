//! What a process that is frozen in the midst of a write would keep from all others: the files that writers lock. While
//! the driver holds them, nobody is in the midst of one.
//!
//! Servers have no such thing: what they were told to do they do, whatever becomes of the process that told them.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

use crate::place::path_of;
use crate::stores::Kind;

/// What is added to the name of a SQLite store's file to name the one that its writers lock.
const BESIDE_SQLITE: &str = ".lock";
/// The file of the singleton's lock in a directory of locks.
const IN_DIRECTORY: &str = "queue.failover.lock";

/// A file that the writers of a store lock.
#[derive(Debug)]
pub struct Gate {
    file: PathBuf,
}

impl Gate {
    /// That of a store, where it has one.
    pub fn of(kind: Kind, url: &str) -> Option<Self> {
        let path = path_of(url);
        match kind {
            Kind::Sqlite => {
                let mut name = path.into_os_string();
                name.push(BESIDE_SQLITE);
                Some(Self { file: PathBuf::from(name) })
            }
            Kind::Directory => Some(Self { file: path.join(IN_DIRECTORY) }),
            Kind::Postgres | Kind::Redis | Kind::Nats | Kind::Queues | Kind::Blobs => None,
        }
    }

    /// Waits until nobody writes to the store, and keeps it so until the answer is dropped.
    ///
    /// # Errors
    /// When the file is not there: then whoever is frozen might hold it.
    pub fn hold(&self) -> Result<Held> {
        let file = File::open(&self.file).with_context(|| format!("cannot open {}", self.file.display()))?;
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

    #[test]
    fn a_store_is_held_by_one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        for (kind, url, name) in [
            (Kind::Sqlite, "sqlite:///bus.db?synchronous=FULL", "bus.db.lock"),
            (Kind::Directory, "file://?reach=machine", "queue.failover.lock"),
        ] {
            let url = url.replacen("://", &format!("://{}", directory.path().display()), 1);
            let gate = Gate::of(kind, &url).unwrap();
            assert!(gate.hold().is_err());
            let file = File::create(directory.path().join(name)).unwrap();
            let held = gate.hold().unwrap();
            assert!(file.try_lock().is_err());
            drop(held);
            assert!(file.try_lock().is_ok());
        }
        assert!(Gate::of(Kind::Redis, "redis://h").is_none());
    }
}
