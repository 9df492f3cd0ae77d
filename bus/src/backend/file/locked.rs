//! A lock's file: looked into, and changed by one at a time.
//!
//! The system's lock on the file is held only while its record is read and written, not for a term: a process that is
//! frozen for longer than its lease must not keep others out. What says who holds the lock is the record.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{damaged, newer, of_file};
use super::record::{self, FILE, Newest, Record, Unreadable};
use crate::error::{Error, ErrorKind, Result};
use crate::files::number_of;

/// Which file it is, whatever its name.
pub(super) type Number = (u64, u64);

/// How often a file without a record is looked into again: two may just be writing to it, one after the other.
const LOOKS: usize = 3;

/// The newest record, without asking for a turn; `None` if there is no such file.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if there is no record in it.
pub(super) fn look(path: &Path) -> Result<Option<Record>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(of_file("the lock's file cannot be opened", path, e)),
    };
    let mut look = || read(&mut file, path);
    let mut seen = look();
    for _ in 1..LOOKS {
        if !seen.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        seen = look();
    }
    seen.map(|newest| Some(newest.record))
}

/// What became of asking for a turn at a file.
#[derive(Debug)]
pub(super) enum Turn {
    /// It is ours.
    Given(Locked),
    /// It is somebody else's.
    Busy,
    /// There is no such file.
    Missing,
}

/// A lock's file during our turn at it, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Locked {
    file: File,
    path: PathBuf,
    number: Number,
}

impl Locked {
    /// Asks for a turn, and does not wait for it.
    pub(super) fn ask(path: PathBuf) -> Result<Turn> {
        let failed = |e| of_file("the lock's file cannot be opened and locked", &path, e);
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Turn::Missing),
            Err(e) => return Err(failed(e)),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Ok(Turn::Busy),
            Err(fs::TryLockError::Error(e)) => return Err(failed(e)),
        }
        let number = number_of(&file.metadata().map_err(failed)?);
        let locked = Locked { file, path, number };
        // Replaced between opening and locking: it is another file's turn that counts.
        if locked.is_in_place()? { Ok(Turn::Given(locked)) } else { Ok(Turn::Busy) }
    }

    /// Which file it is.
    pub(super) fn number(&self) -> Number {
        self.number
    }

    /// The newest record.
    pub(super) fn read(&mut self) -> Result<Newest> {
        read(&mut self.file, &self.path)
    }

    /// Writes the record that follows `newest`, onto the disk.
    pub(super) fn write(&mut self, newest: &Newest, record: &Record) -> Result<()> {
        let written = self.file.seek(SeekFrom::Start(newest.next_at)).and_then(|_| {
            self.file.write_all(&record.write())?;
            self.file.sync_data()
        });
        written.map_err(|e| of_file("the lock's file cannot be written", &self.path, e))
    }

    /// Whether its name still leads to it: in a file that nobody else finds, a record keeps nobody out.
    pub(super) fn is_in_place(&self) -> Result<bool> {
        match fs::metadata(&self.path) {
            Ok(found) => Ok(number_of(&found) == self.number),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(e) => Err(of_file("the lock's file cannot be found", &self.path, e)),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing it would not do: a child that is just being started has the file open, too.
        let _ = self.file.unlock();
    }
}

fn read(file: &mut File, path: &Path) -> Result<Newest> {
    let mut bytes = Vec::with_capacity(FILE);
    let rewound = file.seek(SeekFrom::Start(0));
    let read = rewound.and_then(|_| file.take(FILE as u64).read_to_end(&mut bytes));
    read.map_err(|e| of_file("the lock's file cannot be read", path, e))?;
    record::read(&bytes).map_err(|why| unreadable(path, why))
}

fn unreadable(path: &Path, why: Unreadable) -> Error {
    match why {
        Unreadable::Damaged => damaged(path),
        Unreadable::Newer => newer(path),
    }
}
