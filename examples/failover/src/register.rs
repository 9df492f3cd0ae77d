//! The effect of a run: a write to a register that takes the highest fence only.
//!
//! It stands for whatever a user's handler changes outside of the bus: a database of its own, which knows
//! nothing of locks or leases and is protected by nothing but the fence.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::history;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS highest (one INTEGER PRIMARY KEY CHECK (one = 1), fence INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS settled (m TEXT PRIMARY KEY, fence INTEGER NOT NULL);
";

/// How long a writer waits for another one; a transaction takes well below a millisecond.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the register said to a write, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Whether the write counts.
    pub accepted: bool,
    /// Taken inside the transaction. Hence the order of these times is the order of the writes, even when a
    /// process is frozen between the commit and its line in the history.
    pub t: u64,
}

/// One process's connection to the register.
#[derive(Debug)]
pub struct Register {
    db: Connection,
}

impl Register {
    /// Opens the register at `path`, which is created when missing.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> rusqlite::Result<Self> {
        let begun = Instant::now();
        loop {
            match Self::try_open(path) {
                // Of several that make the file at once, SQLite lets one choose the journal, and has the others not wait.
                Err(error)
                    if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                        && begun.elapsed() < PATIENCE =>
                {
                    thread::sleep(Duration::from_millis(10));
                }
                opened => return opened,
            }
        }
    }

    fn try_open(path: &Path) -> rusqlite::Result<Self> {
        let db = Connection::open(path)?;
        db.busy_timeout(PATIENCE)?;
        db.pragma_update(None, "journal_mode", "wal")?;
        // The faults of this example are those of processes; what was committed is with the kernel.
        db.pragma_update(None, "synchronous", "normal")?;
        db.execute_batch(SCHEMA)?;
        Ok(Self { db })
    }

    /// Records that `m` was done under `fence`, unless a higher fence has been seen.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, m: &str, fence: u64) -> rusqlite::Result<Answer> {
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let t = history::now();
        let fence = i64::try_from(fence).unwrap_or(i64::MAX);
        let highest: Option<i64> =
            transaction.query_row("SELECT fence FROM highest", [], |row| row.get(0)).optional()?;
        if highest.is_some_and(|highest| fence < highest) {
            return Ok(Answer { accepted: false, t });
        }
        transaction.execute("INSERT OR REPLACE INTO highest VALUES (1, ?1)", [fence])?;
        transaction.execute("INSERT OR REPLACE INTO settled VALUES (?1, ?2)", params![m, fence])?;
        transaction.commit()?;
        Ok(Answer { accepted: true, t })
    }

    /// Every message that was done, and the fence that it was done under.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn entries(&self) -> rusqlite::Result<Vec<(String, u64)>> {
        let mut statement = self.db.prepare("SELECT m, fence FROM settled ORDER BY rowid")?;
        let rows = statement.query_map([], |row| {
            let fence: i64 = row.get(1)?;
            Ok((row.get(0)?, u64::try_from(fence).unwrap_or(0)))
        })?;
        rows.collect()
    }

    /// Keeps everybody else from writing until the answer is dropped.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn hold(&mut self) -> rusqlite::Result<Transaction<'_>> {
        self.db.transaction_with_behavior(TransactionBehavior::Immediate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(directory: &tempfile::TempDir) -> Register {
        Register::open(&directory.path().join("register.db")).unwrap()
    }

    #[test]
    fn a_lower_fence_is_refused_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut register = register(&directory);
        assert!(register.write("a", 5).unwrap().accepted);
        assert!(!register.write("a", 4).unwrap().accepted);
        assert!(!register.write("b", 4).unwrap().accepted);
        assert_eq!(register.entries().unwrap(), [("a".to_owned(), 5)]);
    }

    #[test]
    fn the_same_and_a_higher_fence_are_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let mut register = register(&directory);
        for (m, fence) in [("a", 5), ("b", 5), ("a", 6)] {
            assert!(register.write(m, fence).unwrap().accepted);
        }
        let mut entries = register.entries().unwrap();
        entries.sort();
        assert_eq!(entries, [("a".to_owned(), 6), ("b".to_owned(), 5)]);
    }

    #[test]
    fn two_connections_see_one_highest_fence() {
        let directory = tempfile::tempdir().unwrap();
        let (mut one, mut other) = (register(&directory), register(&directory));
        let first = one.write("a", 2).unwrap();
        let second = other.write("b", 1).unwrap();
        assert!(!second.accepted);
        assert!(second.t > first.t);
    }

    #[test]
    fn many_can_make_it_at_once() {
        for _ in 0..10 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("register.db");
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| Register::open(&path).unwrap());
                }
            });
        }
    }

    #[test]
    fn nobody_writes_while_it_is_held() {
        let directory = tempfile::tempdir().unwrap();
        let (mut one, mut other) = (register(&directory), register(&directory));
        other.db.busy_timeout(Duration::ZERO).unwrap();
        let held = one.hold().unwrap();
        assert!(other.write("a", 1).is_err());
        drop(held);
        assert!(other.write("a", 1).unwrap().accepted);
    }
}
