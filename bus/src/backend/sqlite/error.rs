//! The one place where errors of SQLite and of the file system become ours.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;

use crate::error::{Error, ErrorKind};

/// An error of this backend.
pub(super) fn error(kind: ErrorKind, message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(kind, message).in_backend("sqlite")
}

/// An error of the file system while `doing` something to `path`.
pub(super) fn of_file(doing: &'static str, path: &Path, cause: io::Error) -> Error {
    let transient = !matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied);
    error(ErrorKind::Unavailable, doing).with("file", path.display()).caused_by(cause).transient(transient)
}

/// An error before the commit: nothing was changed.
pub(super) fn of_statement(cause: rusqlite::Error) -> Error {
    let (kind, message) = match cause.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (ErrorKind::Unavailable, "somebody else has kept the file locked for too long")
        }
        Some(ErrorCode::DiskFull) => (ErrorKind::Unavailable, "the disk is full"),
        Some(ErrorCode::TooBig) => (ErrorKind::TooLarge, "the message is larger than SQLite takes"),
        Some(ErrorCode::DatabaseCorrupt) => (ErrorKind::Corrupt, "the file is damaged"),
        Some(ErrorCode::NotADatabase) => (ErrorKind::Corrupt, "the file is no SQLite database"),
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted,
        ) => (ErrorKind::Unavailable, "the file cannot be read or written"),
        _ => (ErrorKind::Internal, "a statement failed"),
    };
    error(kind, message).caused_by(cause)
}

/// An error of the commit itself. After a failed write or flush nobody can say what a restart will find.
pub(super) fn of_commit(cause: rusqlite::Error) -> Error {
    match cause.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => error(
            ErrorKind::OutcomeUnknown,
            "the disk failed during the commit, which may or may not have taken effect",
        )
        .caused_by(cause),
        _ => of_statement(cause),
    }
}

/// The file under the path is another one than the one that is open.
pub(super) fn replaced(path: &Path) -> Error {
    error(ErrorKind::Unavailable, "the file was replaced or removed while it was open: restart the host")
        .with("file", path.display())
        .transient(false)
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
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
    }

    #[test]
    fn only_a_disk_that_fails_during_the_commit_leaves_the_outcome_unknown() {
        use rusqlite::ffi;
        assert_eq!(of_commit(failure(ffi::SQLITE_IOERR_FSYNC)).kind(), ErrorKind::OutcomeUnknown);
        assert_eq!(of_commit(failure(ffi::SQLITE_FULL)).kind(), ErrorKind::Unavailable);
        assert_eq!(of_commit(failure(ffi::SQLITE_BUSY)).kind(), ErrorKind::Unavailable);
        assert_eq!(of_statement(failure(ffi::SQLITE_IOERR_WRITE)).kind(), ErrorKind::Unavailable);
        assert_eq!(of_statement(failure(ffi::SQLITE_NOTADB)).kind(), ErrorKind::Corrupt);
        assert_eq!(of_statement(failure(ffi::SQLITE_TOOBIG)).kind(), ErrorKind::TooLarge);
        assert!(of_statement(failure(ffi::SQLITE_BUSY)).is_transient());
    }
}
