//! A file of SQLite, read by rusqlite.

use std::path::PathBuf;

use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use super::Store;
use crate::place::path_of;

/// Messages that wait, are delayed, or are being worked on.
const LEFT: &str = "SELECT uuid FROM bus_message UNION ALL SELECT uuid FROM bus_delayed";
/// Messages that were given up.
const DEAD: &str = "SELECT uuid FROM bus_dead";

/// A reader of the file.
#[derive(Debug)]
pub(super) struct Sqlite {
    file: PathBuf,
}

impl Sqlite {
    pub(super) fn at(url: &str) -> Self {
        Self { file: path_of(url) }
    }

    fn ids(&self, query: &str) -> Result<Vec<String>> {
        let db = Connection::open_with_flags(&self.file, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .with_context(|| format!("cannot open {}", self.file.display()))?;
        let mut statement = db.prepare(query)?;
        let ids = statement.query_map([], |row| row.get::<_, Vec<u8>>(0))?;
        ids.map(|id| Ok(Uuid::from_slice(&id?)?.to_string())).collect()
    }
}

impl Store for Sqlite {
    fn left(&self) -> Result<Vec<String>> {
        self.ids(LEFT)
    }

    fn dead(&self) -> Result<Vec<String>> {
        self.ids(DEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_and_what_is_dead_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?synchronous=FULL", directory.path().join("bus.db").display());
        let store = Sqlite::at(&url);
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
}
