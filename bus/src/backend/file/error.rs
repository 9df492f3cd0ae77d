//! The one place where errors of the file system become ours.

use std::io;
use std::path::Path;

use crate::error::{Error, ErrorKind};

/// An error of this backend.
pub(super) fn error(kind: ErrorKind, message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(kind, message).in_backend("file")
}

/// An error of the file system while `doing` something to `path`.
pub(super) fn of_file(doing: &'static str, path: &Path, cause: io::Error) -> Error {
    use io::ErrorKind as Io;
    let (what, transient) = match cause.kind() {
        Io::StorageFull | Io::QuotaExceeded => {
            ("the disk is full, and nothing was changed: free some space, and it works again by itself", true)
        }
        Io::ReadOnlyFilesystem => ("the file system may only be read: mount it for writing", false),
        Io::PermissionDenied => {
            ("the directory and the files in it have to be readable and writable by this user", false)
        }
        Io::Unsupported => ("the file system cannot do this: keep the locks on another one", false),
        Io::NotFound | Io::NotADirectory => (doing, false),
        _ => (doing, true),
    };
    let error = error(ErrorKind::Unavailable, what).with("path", path.display()).transient(transient);
    match what == doing {
        true => error.caused_by(cause),
        false => error.with("while", doing).caused_by(cause),
    }
}

/// There are no locks, and none are to be made.
pub(super) fn not_there(path: &Path) -> Error {
    error(
        ErrorKind::NotFound,
        "there are no locks in this directory: check the address, where a relative path begins in the working directory; they are made by the first host that is started on it",
    )
    .with("directory", path.display())
}

/// A file cannot be given its name in one step that replaces nothing.
pub(super) fn no_way_to_place(directory: &Path, cause: io::Error) -> Error {
    error(
        ErrorKind::Unsupported,
        "the file system has no hard links, and does not rename a file without replacing another: two could make one lock's file; keep the locks on another one",
    )
    .with("directory", directory.display())
    .caused_by(cause)
}

/// The directory under the path is another one than the one that was opened, or there is none.
pub(super) fn another_directory(path: &Path) -> Error {
    error(
        ErrorKind::Unavailable,
        "the directory of the locks was replaced, emptied or unmounted, and no lock is given until it is back: put it back in its place, or start again what uses it",
    )
    .with("directory", path.display())
}

/// What is in the file is no record of ours.
pub(super) fn damaged(path: &Path) -> Error {
    error(
        ErrorKind::Corrupt,
        "the lock's file was damaged, emptied or written by somebody else, and the lock is given to nobody: stop what runs under it, then remove the file",
    )
    .with("file", path.display())
}

/// The record is of a newer version.
pub(super) fn newer(path: &Path) -> Error {
    error(
        ErrorKind::Unsupported,
        "the lock's file was written by a newer version of bus: bring this program up to date",
    )
    .with("file", path.display())
}

/// Neither the file system nor whoever has the file locked lets us go on.
pub(super) fn too_late() -> Error {
    error(
        ErrorKind::Timeout,
        "the directory did not answer in time: its file system hangs, or a process that was stopped has the lock's file locked",
    )
}

/// The lock manager has been closed.
pub(super) fn closed() -> Error {
    error(ErrorKind::Closed, "the locks have been closed")
}
