//! The directory: that it is still the one that was opened, and how files come into it.
//!
//! The file `bus.locks` in it holds an id. Wherever the directory is mounted, that is what makes it the same; and where
//! the id is missing or another one, it was replaced, emptied or unmounted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use super::config::Config;
use super::error::{another_directory, error, no_way_to_place, not_there, of_file};
use super::place::{self, FileSystem};
use crate::error::{ErrorKind, Result};
use crate::files::{make_private_directory, private};

const MARK: &str = "bus.locks";
const MARK_BEGINS: &str = "bus locks 1 ";
/// What files are called that are not yet in their place.
const NEW: &str = ".new";
/// When nobody can still be about to put such a file into its place.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// A directory with locks.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    path: PathBuf,
    id: Uuid,
}

impl Directory {
    /// Opens it; makes it if it is missing and wanted, and finds out whether files can be locked in it.
    pub(super) fn open(config: &Config) -> Result<Self> {
        if config.create {
            make_private_directory(&config.directory).map_err(|e| {
                of_file(
                    "the directory cannot be made: the one that it is to lie in has to exist",
                    &config.directory,
                    e,
                )
            })?;
        }
        let path = fs::canonicalize(&config.directory).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => not_there(&config.directory),
            _ => of_file("the directory cannot be found", &config.directory, e),
        })?;
        let file_system = FileSystem::of(&path);
        place::check(&path, file_system.as_ref(), config.reach, config.any_file_system)?;
        if config.create {
            check_locking(&path)?;
            remove_forgotten(&path);
            let mark = format!("{MARK_BEGINS}{}\n", Uuid::new_v4());
            put(&path, MARK, mark.as_bytes())?;
        }
        let id = read_mark(&path)?.ok_or_else(|| not_there(&path))?;
        Ok(Directory { path, id })
    }

    /// Its absolute path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What it is called in all places where it is mounted.
    pub(super) fn id(&self) -> Uuid {
        self.id
    }

    /// Whether it is still there.
    pub(super) fn is_there(&self) -> Result<bool> {
        Ok(read_mark(&self.path)? == Some(self.id))
    }

    /// Refuses to go on in another directory than this one.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_there()? { Ok(()) } else { Err(another_directory(&self.path)) }
    }

    /// Puts a new file into its place, whole; `false` if there is one.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        put(&self.path, name, bytes)
    }

    /// The names of all files in it.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let failed = |e| of_file("the directory cannot be read", &self.path, e);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            names.extend(entry.map_err(failed)?.file_name().into_string());
        }
        Ok(names)
    }
}

/// The id in a directory; `None` if there is none.
fn read_mark(directory: &Path) -> Result<Option<Uuid>> {
    let path = directory.join(MARK);
    match fs::read(&path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            Ok(text.strip_prefix(MARK_BEGINS).and_then(|id| Uuid::try_parse(id.trim_end()).ok()))
        }
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(of_file("the directory's id cannot be read", &path, e)),
    }
}

/// Writes a file beside its place and moves it there: it is there whole or not at all, and of many who do this at once
/// one succeeds.
fn put(directory: &Path, name: &str, bytes: &[u8]) -> Result<bool> {
    let new = directory.join(format!(".{}{NEW}", Uuid::new_v4()));
    let put = || {
        let mut file = make(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        match place(&new, &directory.join(name)) {
            Ok(()) => sync(directory).map(|()| true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(e),
        }
    };
    let done = put();
    // If it cannot be removed, a later start does it.
    let _ = fs::remove_file(&new);
    done.map_err(|e| match e.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => no_way_to_place(directory, e),
        _ => of_file("a file cannot be made in the directory", &directory.join(name), e),
    })
}

/// Gives a file its name, unless there is one of that name: by a link, or where there are none (SMB without them, Azure
/// Files) by a renaming that replaces nothing.
fn place(new: &Path, name: &Path) -> io::Result<()> {
    use io::ErrorKind as Io;
    match fs::hard_link(new, name) {
        Err(e) if matches!(e.kind(), Io::PermissionDenied | Io::Unsupported | Io::InvalidInput) => {
            rename_to_nothing(new, name)
        }
        other => other,
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn rename_to_nothing(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE).map_err(io::Error::from)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn rename_to_nothing(_from: &Path, _to: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A new file for all for whom the directory is.
fn make(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create_new(true).read(true).write(true);
    private(&mut options);
    let file = options.open(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let directory = path.parent().unwrap_or(path);
        let mode = fs::metadata(directory)?.permissions().mode() & 0o666;
        match file.set_permissions(fs::Permissions::from_mode(mode | 0o600)) {
            // Where files have no permissions of their own, the mount says for whom they are.
            Err(e) if e.kind() != io::ErrorKind::PermissionDenied => return Err(e),
            _ => {}
        }
    }
    Ok(file)
}

/// Makes the name of a new file as durable as what is in it.
#[cfg(unix)]
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(not(unix))]
fn sync(_directory: &Path) -> io::Result<()> {
    Ok(())
}

/// A file system whose locks keep nobody out is found out here, if it does not even do so on this machine.
fn check_locking(directory: &Path) -> Result<()> {
    let path = directory.join(format!(".{}{NEW}", Uuid::new_v4()));
    let try_it = || {
        let (one, two) = (make(&path)?, OpenOptions::new().read(true).write(true).open(&path)?);
        one.lock()?;
        let is_kept_out = matches!(two.try_lock(), Err(fs::TryLockError::WouldBlock));
        one.unlock()?;
        Ok(is_kept_out)
    };
    let tried = try_it();
    let _ = fs::remove_file(&path);
    match tried {
        Ok(true) => Ok(()),
        Ok(false) => Err(error(
            ErrorKind::Unsupported,
            "the file system does not lock files: a second lock on a file was given while the first was held",
        )
        .with("directory", directory.display())),
        Err(e) => Err(of_file("a file cannot be made and locked in the directory", directory, e)),
    }
}

/// Removes what processes have left behind that ended while they made a file.
fn remove_forgotten(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let is_new =
            entry.file_name().to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(NEW));
        let modified = entry.metadata().and_then(|found| found.modified());
        let is_old = modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > FORGOTTEN));
        if is_new && is_old {
            // Somebody else may be doing the same.
            let _ = fs::remove_file(entry.path());
        }
    }
}
