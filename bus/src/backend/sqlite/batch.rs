//! A batch: what is queued together, committed together, and answered one by one.

use rusqlite::{Connection, ErrorCode};
use tokio::sync::mpsc;

use super::error::{is_of_disk, is_of_full_disk, of_commit, of_statement};
use super::file::StoreFile;
use super::schema;
use super::transaction::{Effects, Known, Tx};
use super::work::Work;
use super::writer::Message;
use crate::clock::Clock;
use crate::error::{Error, Result};

/// How many pieces of work ride together at most.
const LARGEST: usize = 2048;
/// How many bytes they may write together: a transaction is held in memory until its commit.
const BYTES: usize = 32 << 20;

pub(super) type Batch = Vec<Box<dyn Work>>;

/// What became of a batch that was committed: for each item, why it failed alone.
pub(super) struct Committed {
    pub(super) failures: Vec<Option<Error>>,
    pub(super) effects: Effects,
}

/// Why nothing of a batch was committed, or may not have been.
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) cause: Cause,
}

/// What a failure says about the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It has failed.
    Disk,
    /// It is full.
    FullDisk,
    /// Nothing.
    Other,
}

impl Failure {
    fn new(cause: rusqlite::Error, read: fn(rusqlite::Error) -> Error) -> Self {
        let about_disk = match &cause {
            cause if is_of_disk(cause) => Cause::Disk,
            cause if is_of_full_disk(cause) => Cause::FullDisk,
            _ => Cause::Other,
        };
        Failure { cause: about_disk, error: read(cause) }
    }

    /// Of a statement: nothing was changed.
    pub(super) fn of_statement(cause: rusqlite::Error) -> Self {
        Failure::new(cause, of_statement)
    }

    fn of_commit(cause: rusqlite::Error) -> Self {
        Failure::new(cause, of_commit)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { error, cause: Cause::Other }
    }
}

/// Takes what is queued and still wanted; the second answer is whether the end of the queue was reached.
pub(super) fn gather(first: Box<dyn Work>, waiting: &mut mpsc::Receiver<Message>) -> (Batch, bool) {
    let mut weight = first.weight();
    let mut batch = vec![first];
    let mut stop = false;
    while batch.len() < LARGEST && weight < BYTES {
        match waiting.try_recv() {
            Ok(Message::Work(work)) => {
                weight += work.weight();
                batch.push(work);
            }
            Ok(Message::Stop) => {
                stop = true;
                break;
            }
            Err(_) => break,
        }
    }
    batch.retain_mut(|work| work.take());
    (batch, stop)
}

/// Why a transaction was not committed.
enum Refused {
    /// One item failed, so that the others may yet succeed without it.
    Item(Failure),
    /// All have failed alike.
    All(Failure),
}

/// Commits a batch: all of it at once, and if something fails, again with each item in a savepoint of its own.
pub(super) fn commit(
    file: &StoreFile,
    known: &mut Known,
    clock: &Clock,
    batch: &mut Batch,
) -> Result<Committed, Failure> {
    let mut attempt = |careful| {
        let mut tx = Tx::new(&file.connection, known, clock, file.boot);
        let result = attempt(&file.connection, &mut tx, batch, careful);
        match result {
            Ok(failures) => Ok(Committed { failures, effects: tx.committed() }),
            Err(refused) => {
                drop(tx);
                roll_back(&file.connection);
                Err(refused)
            }
        }
    };
    match attempt(false) {
        Err(Refused::Item(_)) => attempt(true),
        other => other,
    }
    .map_err(|(Refused::Item(failure) | Refused::All(failure))| failure)
}

fn attempt(
    connection: &Connection,
    tx: &mut Tx<'_>,
    batch: &mut Batch,
    careful: bool,
) -> Result<Vec<Option<Error>>, Refused> {
    let all = |e| Refused::All(Failure::of_statement(e));
    run(connection, "BEGIN IMMEDIATE").map_err(all)?;
    schema::check_unchanged(connection).map_err(|e| Refused::All(e.into()))?;
    // Only now is it our turn: the time before that may have been long.
    tx.read_clocks();
    let mut failures = Vec::with_capacity(batch.len());
    for work in batch.iter_mut() {
        let failure = if careful {
            run_alone(connection, tx, work.as_mut())?
        } else {
            let item = |e| Refused::Item(Failure::of_statement(e));
            work.run(tx).map_err(|e| if is_everyones(&e) { all(e) } else { item(e) })?;
            None
        };
        failures.push(failure);
    }
    tx.finish().map_err(all)?;
    #[cfg(feature = "failpoints")]
    super::failpoint::reached();
    run(connection, "COMMIT").map_err(|e| Refused::All(Failure::of_commit(e)))?;
    Ok(failures)
}

/// Runs one item so that its failure leaves the others untouched.
fn run_alone(
    connection: &Connection,
    tx: &mut Tx<'_>,
    work: &mut dyn Work,
) -> Result<Option<Error>, Refused> {
    let all = |e| Refused::All(Failure::of_statement(e));
    run(connection, "SAVEPOINT item").map_err(all)?;
    let failure = match work.run(tx) {
        Ok(()) => None,
        Err(e) if is_everyones(&e) => return Err(all(e)),
        Err(e) => {
            run(connection, "ROLLBACK TO item").map_err(all)?;
            tx.forget();
            Some(of_statement(e))
        }
    };
    run(connection, "RELEASE item").map_err(all)?;
    Ok(failure)
}

/// Whether an error is not the item's own: SQLite has then rolled back the whole transaction, or may have.
fn is_everyones(e: &rusqlite::Error) -> bool {
    matches!(
        e.sqlite_error_code(),
        Some(
            ErrorCode::SystemIoFailure
                | ErrorCode::DiskFull
                | ErrorCode::OutOfMemory
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::OperationInterrupted
        )
    )
}

fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

fn roll_back(connection: &Connection) {
    if !connection.is_autocommit()
        && let Err(e) = run(connection, "ROLLBACK")
    {
        tracing::warn!(error = %e, "a transaction could not be rolled back");
    }
}
