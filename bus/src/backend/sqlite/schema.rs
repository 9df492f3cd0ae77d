//! Whose file it is, and which version of the tables is in it: recognised, made, and brought up to date.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::error::{error, of_commit, of_statement};
use crate::error::{Error, ErrorKind, Result};

/// "bus1": says whose file it is, to us and to `file(1)`.
const APPLICATION_ID: i32 = 0x6275_7331;

/// What makes each version of the tables out of the one before, in order: the first makes version 1 in an empty file.
/// What has been released never changes; a new version is a new step at the end, and the only one that says what is new.
const STEPS: &[&str] =
    &[include_str!("sql/schema.sql"), include_str!("sql/schema_2.sql"), include_str!("sql/schema_3.sql")];

/// A version of the tables; 0 is an empty file.
type Version = u32;

/// The version that this code reads and writes.
const OURS: Version = newest(STEPS);

const fn newest(steps: &[&str]) -> Version {
    steps.len() as Version
}

/// What is in a file that may be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Empty,
    Older,
    /// As this code needs it.
    Current,
}

/// What is in the file. Reads only.
pub(super) fn find(connection: &Connection) -> Result<Found> {
    Ok(match recognise(connection, OURS)? {
        0 => Found::Empty,
        OURS => Found::Current,
        _ => Found::Older,
    })
}

/// Brings an empty or an older file up to date, unless another process has done so already; answers from which version.
/// Called within the gate.
pub(super) fn bring_up_to_date(connection: &Connection) -> Result<Version> {
    upgrade(connection, STEPS)
}

/// Within a transaction: refuses to go on if a newer program has brought the file up to date beneath us.
pub(super) fn check_unchanged(connection: &Connection) -> Result<()> {
    let version = connection
        .prepare_cached("PRAGMA user_version")
        .and_then(|mut pragma| pragma.query_row([], |row| row.get::<_, Version>(0)));
    match version.map_err(of_statement)? {
        OURS => Ok(()),
        other => Err(error(
            ErrorKind::Corrupt,
            "the file's tables were changed to another version while it was open: upgrade this program too, and start it again",
        )
        .with("its version", other)
        .with("ours", OURS)),
    }
}

/// The version of the tables in the file.
fn recognise(connection: &Connection, ours: Version) -> Result<Version> {
    // One snapshot for all questions: another process may be making the tables just now.
    let _snapshot =
        Transaction::new_unchecked(connection, TransactionBehavior::Deferred).map_err(of_statement)?;
    let pragma = |name| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i32>(0));
    let owner = pragma("application_id").map_err(of_statement)?;
    let version = pragma("user_version").map_err(of_statement)?;
    match (owner, Version::try_from(version)) {
        (APPLICATION_ID, Ok(version)) if (1..=ours).contains(&version) => Ok(version),
        (APPLICATION_ID, Ok(newer)) if newer > ours => Err(newer_than_we_are(newer, ours)),
        (0, Ok(0)) if is_empty(connection).map_err(of_statement)? => Ok(0),
        _ => Err(error(
            ErrorKind::Corrupt,
            "the file is a SQLite database of another program: name a file of its own for bus",
        )),
    }
}

fn newer_than_we_are(version: Version, ours: Version) -> Error {
    error(
        ErrorKind::Corrupt,
        "the file was made by a newer version of bus: upgrade this program, or use another file",
    )
    .with("its version", version)
    .with("ours", ours)
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))
}

/// Takes all steps that are missing, in one transaction: a file is of one version or of another, whatever happens.
fn upgrade(connection: &Connection, steps: &[&str]) -> Result<Version> {
    let from = recognise(connection, newest(steps))?;
    if from == 0 {
        keep_a_log(connection)?;
    }
    let missing = || {
        let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
        for step in &steps[from as usize..] {
            transaction.execute_batch(step)?;
        }
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", newest(steps))?;
        Ok(transaction)
    };
    let transaction = missing().map_err(of_statement)?;
    transaction.commit().map_err(of_commit)?;
    Ok(from)
}

fn keep_a_log(connection: &Connection) -> Result<()> {
    let journal: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(of_statement)?;
    match journal.eq_ignore_ascii_case("wal") {
        true => Ok(()),
        false => Err(error(
            ErrorKind::Unavailable,
            "the file system cannot hold a write-ahead log: use a local one",
        )
        .transient(false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of its own, since there is no log in memory.
    fn scratch() -> (std::path::PathBuf, Connection) {
        let path = std::env::temp_dir().join(format!("bus-schema-{}.db", uuid::Uuid::new_v4()));
        let connection = Connection::open(&path).unwrap();
        (path, connection)
    }

    const FIRST: &str = "CREATE TABLE bus_thing (id INTEGER PRIMARY KEY)";
    const SECOND: &str = "ALTER TABLE bus_thing ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'";
    const THIRD: &str = "UPDATE bus_thing SET colour = colour || 'dish'";

    fn colours(connection: &Connection) -> Vec<String> {
        let mut statement = connection.prepare("SELECT colour FROM bus_thing ORDER BY id").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn an_older_file_takes_the_steps_that_are_missing_and_keeps_what_is_in_it() {
        let (path, connection) = scratch();
        assert_eq!(upgrade(&connection, &[FIRST]).unwrap(), 0);
        connection.execute_batch("INSERT INTO bus_thing DEFAULT VALUES").unwrap();
        assert_eq!(upgrade(&connection, &[FIRST, SECOND, THIRD]).unwrap(), 1);
        assert_eq!(colours(&connection), ["reddish"]);
        assert_eq!(recognise(&connection, 3).unwrap(), 3);
        // Another process was faster: nothing is done twice.
        assert_eq!(upgrade(&connection, &[FIRST, SECOND, THIRD]).unwrap(), 3);
        assert_eq!(colours(&connection), ["reddish"]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_step_that_fails_leaves_the_file_as_it_was() {
        let (path, connection) = scratch();
        upgrade(&connection, &[FIRST]).unwrap();
        upgrade(&connection, &[FIRST, SECOND, "no SQL"]).unwrap_err();
        assert!(connection.is_autocommit());
        assert_eq!(recognise(&connection, 3).unwrap(), 1);
        assert!(connection.prepare("SELECT colour FROM bus_thing").is_err());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_newer_file_is_refused_and_named() {
        let (path, connection) = scratch();
        upgrade(&connection, &[FIRST, SECOND]).unwrap();
        let error = recognise(&connection, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("its version: 2, ours: 1"), "{error}");
        std::fs::remove_file(path).unwrap();
    }
}
