//! Opening a store's file: made if missing, recognised if there, and watched for being replaced.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::config::Config;
use super::error::{error, of_file, of_statement, replaced};
use super::gate::{Gate, private};
use crate::error::{ErrorKind, Result};

/// "bus1": says whose file it is, to us and to `file(1)`.
const APPLICATION_ID: i32 = 0x6275_7331;
/// The version of the tables that this code reads and writes.
const SCHEMA_VERSION: i32 = 1;

const SCHEMA: &str = include_str!("sql/schema.sql");

/// One connection to a store.
#[derive(Debug)]
pub(super) struct StoreFile {
    pub(super) connection: Connection,
    pub(super) gate: Gate,
    /// This run of the machine's kernel, by its number in the store.
    pub(super) boot: i64,
    identity: Identity,
}

/// Which file it is, whatever its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    path: PathBuf,
    #[cfg(unix)]
    inode: (u64, u64),
}

impl Identity {
    // By its name alone: to open and close the file ourselves would let go of SQLite's own locks on it, which the
    // system keeps per process.
    #[cfg(unix)]
    fn of(path: PathBuf) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::metadata(&path)?;
        Ok(Identity { path, inode: (metadata.dev(), metadata.ino()) })
    }

    #[cfg(not(unix))]
    fn of(path: PathBuf) -> io::Result<Self> {
        fs::metadata(&path)?;
        Ok(Identity { path })
    }

    /// The file's absolute path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path leads to another file now, or to none.
    pub(super) fn is_replaced(&self) -> bool {
        !matches!(Identity::of(self.path.clone()), Ok(now) if now == *self)
    }
}

impl StoreFile {
    /// Opens the file, which is made if missing. Several processes may do so at once.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the file belongs to something else or to a newer version;
    /// [`ErrorKind::Unavailable`] if it cannot be opened.
    pub(super) fn open(config: &Config) -> Result<Self> {
        let path = create_if_missing(&config.path)?;
        let gate_path = beside(&path, ".lock");
        let gate = Gate::open(&gate_path).map_err(|e| of_file("cannot open the side file", &gate_path, e))?;
        let identity = Identity::of(path.clone()).map_err(|e| of_file("cannot open the file", &path, e))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags)
            .map_err(|e| of_statement(e).with("file", path.display()))?;
        let boot = prepare(&connection, &gate, config).map_err(|e| e.with("file", path.display()))?;
        if identity.is_replaced() {
            return Err(replaced(&path));
        }
        Ok(StoreFile { connection, gate, boot, identity })
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// The path of a side file.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Makes an empty file for this user only, unless there is one; SQLite gives its side files the same mode.
fn create_if_missing(path: &Path) -> Result<PathBuf> {
    // Closing the new file would let go of the locks that another thread has taken on it through SQLite meanwhile.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    private(&mut options);
    match options.open(path) {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(of_file("cannot create the file", path, e)),
    }
    fs::canonicalize(path).map_err(|e| of_file("cannot open the file", path, e))
}

/// Makes the connection ready for use, and the file if it is a new one; answers the number of this boot.
fn prepare(connection: &Connection, gate: &Gate, config: &Config) -> Result<i64> {
    connection.busy_timeout(config.busy_timeout).map_err(of_statement)?;
    // Outside of the gate only a yes counts: between the reads of one look somebody else may just make the file.
    if !matches!(check(connection), Ok(Content::Ours)) {
        let _passage = gate.pass();
        create(connection)?;
    }
    configure(connection, config).map_err(of_statement)?;
    let name = crate::clock::boot_id();
    if let Some(boot) = find_boot(connection, &name).map_err(of_statement)? {
        return Ok(boot);
    }
    let _passage = gate.pass();
    connection.execute(include_str!("sql/boot_insert.sql"), [&name]).map_err(of_statement)?;
    find_boot(connection, &name)
        .map_err(of_statement)?
        .ok_or_else(|| error(ErrorKind::Internal, "this boot could not be registered"))
}

#[derive(PartialEq, Eq)]
enum Content {
    Empty,
    Ours,
}

fn check(connection: &Connection) -> Result<Content> {
    // One snapshot for all questions: another process may be making the tables just now.
    let _snapshot =
        Transaction::new_unchecked(connection, TransactionBehavior::Deferred).map_err(of_statement)?;
    let pragma = |name| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i32>(0));
    let owner = pragma("application_id").map_err(of_statement)?;
    let version = pragma("user_version").map_err(of_statement)?;
    match (owner, version) {
        (APPLICATION_ID, SCHEMA_VERSION) => Ok(Content::Ours),
        (APPLICATION_ID, newer) if newer > SCHEMA_VERSION => Err(error(
            ErrorKind::Corrupt,
            "the file was made by a newer version of bus: upgrade this program, or use another file",
        )
        .with("its version", newer)
        .with("ours", SCHEMA_VERSION)),
        (0, 0) if is_empty(connection).map_err(of_statement)? => Ok(Content::Empty),
        _ => Err(error(
            ErrorKind::Corrupt,
            "the file is a SQLite database of another program: name a file of its own for bus",
        )),
    }
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))
}

/// Makes the tables, unless another process was faster. Called within the gate.
fn create(connection: &Connection) -> Result<()> {
    if check(connection)? == Content::Ours {
        return Ok(());
    }
    let journal: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(of_statement)?;
    if !journal.eq_ignore_ascii_case("wal") {
        return Err(error(
            ErrorKind::Unavailable,
            "the file system cannot hold a write-ahead log: use a local one",
        )
        .transient(false));
    }
    let create = || {
        let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        transaction.commit()
    };
    create().map_err(of_statement)
}

fn configure(connection: &Connection, config: &Config) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "synchronous", config.synchronous.as_str())?;
    connection.pragma_update(None, "cache_size", -16 * 1024)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // 16 MiB of log between two checkpoints: each costs two more flushes, whatever it copies.
    connection.query_row("PRAGMA wal_autocheckpoint = 4000", [], |_| Ok(()))?;
    // After a burst the log shrinks again.
    connection.query_row("PRAGMA journal_size_limit = 67108864", [], |_| Ok(()))
}

fn find_boot(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    use rusqlite::OptionalExtension;
    connection.query_row(include_str!("sql/boot_find.sql"), [name], |row| row.get(0)).optional()
}

/// How long a connection that must answer in time waits for somebody who does not ask at the gate.
pub(super) const BRIEF: Duration = Duration::from_millis(500);
