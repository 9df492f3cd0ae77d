//! The one place where errors of SQLite and of the file system become ours.

use std::io;
use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use crate::error::{Error, ErrorKind};

const FULL: &str = "the disk is full, and nothing was changed: free some space, and it works again by itself";

/// An error of this backend.
pub(super) fn error(kind: ErrorKind, message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(kind, message).in_backend("sqlite")
}

/// An error of the file system while `doing` something to `path`.
pub(super) fn of_file(doing: &'static str, path: &Path, cause: io::Error) -> Error {
    use io::ErrorKind as Io;
    let transient = !matches!(cause.kind(), Io::NotFound | Io::PermissionDenied | Io::ReadOnlyFilesystem);
    error(ErrorKind::Unavailable, doing).with("file", path.display()).caused_by(cause).transient(transient)
}

/// An error before the commit: nothing was changed.
pub(super) fn of_statement(cause: rusqlite::Error) -> Error {
    let (kind, message) = match cause.sqlite_error_code() {
        _ if is_cut_off(&cause) => (
            ErrorKind::Corrupt,
            "the file or its log has been cut off: stop what uses it, and restore it from a backup",
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            ErrorKind::Unavailable,
            "somebody else has kept the file locked for too long: look for a tool that has left a transaction open",
        ),
        Some(ErrorCode::DiskFull) => (ErrorKind::Unavailable, FULL),
        Some(ErrorCode::TooBig) => (ErrorKind::TooLarge, "the message is larger than SQLite takes"),
        Some(ErrorCode::DatabaseCorrupt) => (
            ErrorKind::Corrupt,
            "the file is damaged: stop what uses it, and restore it from a backup, or save what can be read with `sqlite3 FILE .recover`",
        ),
        Some(ErrorCode::NotADatabase) => (
            ErrorKind::Corrupt,
            "the file is no SQLite database, or not any more: name another file for bus, or restore it from a backup",
        ),
        Some(ErrorCode::ReadOnly) => (
            ErrorKind::Unavailable,
            "the file may only be read: let this user write to it, to its directory and to what lies beside it",
        ),
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::PermissionDenied
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted,
        ) => (
            ErrorKind::Unavailable,
            "the file cannot be read or written, and nothing was changed: look at the disk; it is tried again",
        ),
        _ => (ErrorKind::Internal, "a statement failed"),
    };
    error(kind, message).caused_by(cause)
}

/// An error of the commit itself. After a failed write or flush nobody can say what a restart will find.
pub(super) fn of_commit(cause: rusqlite::Error) -> Error {
    match cause.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) if !is_cut_off(&cause) => error(
            ErrorKind::OutcomeUnknown,
            "the disk failed during the commit, which may or may not have taken effect: look at the disk",
        )
        .caused_by(cause),
        _ => of_statement(cause),
    }
}

/// The same while a store is opened: a file that may only be read is not waited for, since somebody has to change that.
pub(super) fn of_opening(error: Error) -> Error {
    let source =
        std::error::Error::source(&error).and_then(|source| source.downcast_ref::<rusqlite::Error>());
    match source.and_then(rusqlite::Error::sqlite_error_code) {
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => error.transient(false),
        _ => error,
    }
}

/// Whether the disk has failed, so that nothing that was written since the last commit can be relied on.
pub(super) fn is_of_disk(cause: &rusqlite::Error) -> bool {
    cause.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
}

/// Whether there is no room for what was to be written.
pub(super) fn is_of_full_disk(cause: &rusqlite::Error) -> bool {
    cause.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// A file that ends where SQLite knows that it goes on: no disk does that, only somebody who has cut it off.
fn is_cut_off(cause: &rusqlite::Error) -> bool {
    cause.sqlite_error().is_some_and(|code| code.extended_code == ffi::SQLITE_IOERR_SHORT_READ)
}

/// There is no room for more.
pub(super) fn full(path: &Path) -> Error {
    error(ErrorKind::Unavailable, FULL).with("file", path.display())
}

/// The file under the path is another one than the one that is open, or there is none.
pub(super) fn away(path: &Path) -> Error {
    error(
        ErrorKind::Unavailable,
        "the file was replaced or removed while it was open, and nothing is read or written until it is back",
    )
    .with("file", path.display())
}

/// The same, for too long.
pub(super) fn gone(path: &Path) -> Error {
    error(
        ErrorKind::Unavailable,
        "the file was replaced or removed while it was open, and did not come back: put the right one in its place and start again",
    )
    .with("file", path.display())
    .transient(false)
}

/// The log or its index was removed or replaced, and what they held is not in the file yet.
pub(super) fn tampered(path: &Path) -> Error {
    error(
        ErrorKind::Unavailable,
        "the file's log (-wal) or its index (-shm) was removed or replaced while it was open: what they held is being brought into the file",
    )
    .with("file", path.display())
}

/// The same, found out after a commit that went into the log.
pub(super) fn tampered_meanwhile() -> Error {
    error(
        ErrorKind::OutcomeUnknown,
        "the file, its log (-wal) or its index (-shm) was removed or replaced during the commit, which may or may not be found again",
    )
}

/// The same, when it is in the file, as far as it can be.
pub(super) fn abandoned(path: &Path) -> Error {
    error(
        ErrorKind::Unavailable,
        "the file's log (-wal) or its index (-shm) was removed or replaced while it was open: start everything again that has the file open, and leave the two alone",
    )
    .with("file", path.display())
    .transient(false)
}

/// There is no store, and none is to be made.
pub(super) fn no_store(why: &'static str) -> Error {
    error(
        ErrorKind::NotFound,
        format!(
            "{why}: check the address, where a relative path begins in the working directory; the store is made by the \
             first host that is started on it"
        ),
    )
}

/// The tables are of an older version, and are not to be changed.
pub(super) fn older() -> Error {
    error(
        ErrorKind::Unsupported,
        "the store was made by an older version of bus: it is brought up to date by the first host of this version that is started on it",
    )
}

/// Instead of messages there is nothing in the file.
pub(super) fn cut_off() -> Error {
    error(
        ErrorKind::Corrupt,
        "the file has been emptied while it was open: stop what uses it, and restore it from a backup",
    )
}

/// The store's thread has panicked.
pub(super) fn panicked(path: &Path) -> Error {
    error(
        ErrorKind::Unavailable,
        "the thread that reads and writes the file panicked, which is a defect: report what it said, and start again",
    )
    .with("file", path.display())
    .transient(false)
}

/// The same, to whoever waits for an answer of it.
pub(super) fn broken_off() -> Error {
    error(
        ErrorKind::OutcomeUnknown,
        "the store's thread came to a sudden end: what it was asked for has been done, or has not",
    )
}

/// The store has been closed.
pub(super) fn closed() -> Error {
    error(ErrorKind::Closed, "the store has been closed")
}

/// The claim named by a receipt is not (any more) in the store.
pub(super) fn receipt_lost() -> Error {
    error(ErrorKind::ReceiptLost, "the claim on the message is no longer ours")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn only_a_disk_that_fails_during_the_commit_leaves_the_outcome_unknown() {
        assert_eq!(of_commit(failure(ffi::SQLITE_IOERR_FSYNC)).kind(), ErrorKind::OutcomeUnknown);
        assert_eq!(of_commit(failure(ffi::SQLITE_FULL)).kind(), ErrorKind::Unavailable);
        assert_eq!(of_commit(failure(ffi::SQLITE_BUSY)).kind(), ErrorKind::Unavailable);
        assert_eq!(of_statement(failure(ffi::SQLITE_IOERR_WRITE)).kind(), ErrorKind::Unavailable);
        assert_eq!(of_statement(failure(ffi::SQLITE_NOTADB)).kind(), ErrorKind::Corrupt);
        assert_eq!(of_statement(failure(ffi::SQLITE_TOOBIG)).kind(), ErrorKind::TooLarge);
        assert!(of_statement(failure(ffi::SQLITE_BUSY)).is_transient());
    }

    #[test]
    fn a_file_that_may_only_be_read_is_not_waited_for() {
        assert!(of_statement(failure(ffi::SQLITE_READONLY)).is_transient());
        assert!(!of_opening(of_statement(failure(ffi::SQLITE_READONLY))).is_transient());
        assert!(of_opening(of_statement(failure(ffi::SQLITE_BUSY))).is_transient());
    }

    #[test]
    fn a_file_that_was_cut_off_is_damaged_and_not_a_failing_disk() {
        assert_eq!(of_statement(failure(ffi::SQLITE_IOERR_SHORT_READ)).kind(), ErrorKind::Corrupt);
        assert_eq!(of_commit(failure(ffi::SQLITE_IOERR_SHORT_READ)).kind(), ErrorKind::Corrupt);
        assert!(!of_statement(failure(ffi::SQLITE_IOERR_SHORT_READ)).is_transient());
    }
}
