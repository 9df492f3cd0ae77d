//! Where a store lies: what must be so before SQLite may touch the path, and what has become of the files since.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::error::{away, cut_off, error, no_store, of_file};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{number_of, private};

/// Sees to it that there is a file, made if missing and wanted, and that SQLite will be able to work with it: what SQLite
/// would find out late, say unclearly or even make worse is refused here. Answers the file's absolute path.
pub(super) fn admit(path: &Path, create: bool) -> Result<PathBuf> {
    let length = match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            return Err(misplaced("the path is a directory: name a file in it", path));
        }
        Ok(found) if !found.is_file() => {
            return Err(misplaced("the path is a pipe, a socket or a device: name a regular file", path));
        }
        Ok(found) => found.len(),
        // If it is for another reason that nothing is found, making it will say so.
        Err(_) => 0,
    };
    if length == 0 {
        spare_log(path)?;
        if create {
            create_if_missing(path)?;
        }
    }
    let path = fs::canonicalize(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => no_store("there is no such file").with("file", path.display()),
        _ => of_file("cannot open the file", path, e),
    })?;
    check_access(&path)?;
    Ok(path)
}

/// The same for a file that was open before.
pub(super) fn readmit(identity: &Identity) -> Result<()> {
    match identity.look() {
        Sight::Nothing | Sight::Another => Err(away(identity.path())),
        Sight::There(Some(0)) => Err(cut_off().with("file", identity.path().display())),
        Sight::There(_) => Ok(()),
    }
}

fn misplaced(why: &'static str, path: &Path) -> Error {
    error(ErrorKind::Config, why).with("path", path.display())
}

/// SQLite removes the log of an empty file, and with it all that was committed since the file was last complete.
fn spare_log(path: &Path) -> Result<()> {
    let has_bytes = |path: &Path| fs::metadata(path).is_ok_and(|found| found.len() > 0);
    let log = beside(path, "-wal");
    // In this order: another process that is just making the store writes to the file before there is a log.
    if !has_bytes(&log) || has_bytes(path) {
        return Ok(());
    }
    Err(error(
        ErrorKind::Corrupt,
        "the file is missing or empty, but its log holds messages: put the file back in its place; only if nothing in it is needed any more, remove the log",
    )
    .with("file", path.display())
    .with("log", log.display()))
}

/// Makes an empty file for this user only, unless there is one; SQLite gives its side files the same mode.
fn create_if_missing(path: &Path) -> Result<()> {
    // Closing the new file would let go of the locks that another thread has taken on it through SQLite meanwhile.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    private(&mut options);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(of_file("cannot create the file: its directory has to exist", path, e))
        }
        Err(e) => {
            Err(of_file("cannot create the file: the directory has to be writable by this user", path, e))
        }
    }
}

/// SQLite opens what it may not write to for reading, without a word, and leaves side files behind that are in the way
/// of whoever may write later.
#[cfg(unix)]
fn check_access(path: &Path) -> Result<()> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let may_not = |doing| move |e: rustix::io::Errno| of_file(doing, path, e.into());
    accessat(CWD, path, Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS)
        .map_err(may_not("the file has to be readable and writable by this user"))?;
    let directory = path.parent().unwrap_or(path);
    accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
        .map_err(may_not("the file's directory has to be writable by this user: the log is made in it"))
}

#[cfg(not(unix))]
fn check_access(_path: &Path) -> Result<()> {
    Ok(())
}

/// The path of a side file.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// What is under a path where a certain file has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// The same file, and its length in bytes if the system says it.
    There(Option<u64>),
    Another,
    Nothing,
}

impl Sight {
    /// By its name alone: to open and close the file ourselves would let go of SQLite's own locks on it, which the system
    /// keeps per process.
    fn of(path: &Path, number: (u64, u64)) -> Self {
        match fs::metadata(path) {
            Ok(found) if number_of(&found) == number => Sight::There(Some(found.len())),
            Ok(_) => Sight::Another,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Sight::Nothing
            }
            // Not a word about the file: whoever has it open goes on, and finds out if it does not work.
            Err(_) => Sight::There(None),
        }
    }
}

/// A store's file that is open, by its path and by what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    path: PathBuf,
    number: (u64, u64),
}

impl Identity {
    pub(super) fn of(path: PathBuf) -> io::Result<Self> {
        let number = number_of(&fs::metadata(&path)?);
        Ok(Identity { path, number })
    }

    /// The file's absolute path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What is there now.
    pub(super) fn look(&self) -> Sight {
        Sight::of(&self.path, self.number)
    }

    /// Whether the path leads to another file now, or to none.
    pub(super) fn is_away(&self) -> bool {
        !matches!(self.look(), Sight::There(_))
    }
}

/// The two files beside it that a connection has open all its life. SQLite keeps them for as long as anyone has the store
/// open, and never asks whether others still see the same ones.
#[derive(Debug)]
pub(super) struct Companions {
    /// `-wal`: what was committed and is not in the file yet.
    log: Companion,
    /// `-shm`: what is where in the log, and who reads and writes.
    index: Companion,
}

#[derive(Debug)]
struct Companion {
    path: PathBuf,
    number: Option<(u64, u64)>,
}

/// What has been done to the log or its index beneath us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tampering {
    /// One of them has been removed: whoever opens the store now sees less than we do.
    Removed,
    /// Another one has taken its place: others have gone on without us.
    Replaced,
}

impl Companions {
    /// Those of a store that has been read from.
    pub(super) fn of(path: &Path) -> Self {
        Companions { log: Companion::of(beside(path, "-wal")), index: Companion::of(beside(path, "-shm")) }
    }

    /// The log's length in bytes, or what has been done to the two.
    pub(super) fn look(&self) -> Result<u64, Tampering> {
        match (self.index.look(), self.log.look()) {
            (Ok(_), Ok(length)) => Ok(length),
            (Err(Tampering::Replaced), _) | (_, Err(Tampering::Replaced)) => Err(Tampering::Replaced),
            (Err(Tampering::Removed), _) | (_, Err(Tampering::Removed)) => Err(Tampering::Removed),
        }
    }

    /// Moves them out of the way of a file that has taken the place of ours: SQLite would take our log for its log, and
    /// make one damaged store out of two sound ones. Answers where the log is now, if it was in the way.
    pub(super) fn step_aside(&self) -> Option<PathBuf> {
        if self.index.look().is_ok() {
            // Of no use to anyone who does not have it open.
            let _ = fs::remove_file(&self.index.path);
        }
        // What was moved aside in an earlier accident may be all that is left of it.
        let names = std::iter::once(".replaced".to_owned()).chain((2..).map(|n| format!(".replaced.{n}")));
        let mut free = names.map(|name| beside(&self.log.path, &name)).filter(|aside| !aside.exists());
        let aside = free.next()?;
        let moved = self.log.look().is_ok() && fs::rename(&self.log.path, &aside).is_ok();
        moved.then_some(aside)
    }
}

impl Companion {
    fn of(path: PathBuf) -> Self {
        let number = fs::metadata(&path).ok().map(|found| number_of(&found));
        Companion { path, number }
    }

    fn look(&self) -> Result<u64, Tampering> {
        let Some(number) = self.number else { return Ok(0) };
        match Sight::of(&self.path, number) {
            Sight::There(length) => Ok(length.unwrap_or(0)),
            Sight::Another => Err(Tampering::Replaced),
            Sight::Nothing => Err(Tampering::Removed),
        }
    }
}
