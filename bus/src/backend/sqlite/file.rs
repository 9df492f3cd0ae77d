//! Opening a store's file: made if missing, brought up to date if it is older, and set up for use.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::config::Config;
use super::error::{away, cut_off, error, is_of_disk, no_store, of_file, of_statement, older, tampered};
use super::gate::Gate;
use super::place::{Companions, Identity, Sight, Tampering, admit, beside, readmit};
use super::reserve::{self, Reserve};
use super::schema::{self, Found};
use crate::error::{Error, ErrorKind, Result};

/// How long a connection that must answer in time waits for somebody who does not ask at the gate.
pub(super) const BRIEF: Duration = Duration::from_millis(500);

/// How long the log gets in a burst, and how long it stays afterwards, in bytes.
pub(super) const LOG_LIMIT: u64 = 64 << 20;

/// One connection to a store.
#[derive(Debug)]
pub(super) struct StoreFile {
    pub(super) connection: Connection,
    pub(super) gate: Gate,
    /// Our boot clock, by its number in the store.
    pub(super) boot: i64,
    /// The disk has failed beneath it: what was written since the last commit may be on the disk or not, whatever
    /// reading it says. It is not written to any more.
    pub(super) is_suspect: bool,
    identity: Identity,
    companions: Companions,
}

/// What is not any more where or what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Displaced {
    /// Another file is there, or none.
    File,
    /// There is nothing in it any more.
    Emptied,
    /// The log or its index.
    Companion(Tampering),
}

impl StoreFile {
    /// Opens the file, which is made if missing and wanted. Several processes may do so at once.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no store and none is to be made; [`ErrorKind::Corrupt`] if the file belongs to
    /// something else or to a newer version, or is damaged; [`ErrorKind::Config`] if the path leads to something else than
    /// a file; [`ErrorKind::Unavailable`] if it cannot be opened.
    pub(super) fn open(config: &Config) -> Result<Self> {
        let path = admit(&config.path, config.create)?;
        let identity = Identity::of(path.clone()).map_err(|e| of_file("cannot open the file", &path, e))?;
        match StoreFile::connect(config, identity.clone(), Opening::First) {
            Err(_) if Reserve::beside(&path).relieve() => {
                StoreFile::connect(config, identity, Opening::First)
            }
            opened => opened,
        }
    }

    /// Opens the file that was open before, and no other.
    pub(super) fn open_again(config: &Config, identity: &Identity) -> Result<Self> {
        readmit(identity)?;
        StoreFile::connect(config, identity.clone(), Opening::Again)
    }

    fn connect(config: &Config, identity: Identity, opening: Opening) -> Result<Self> {
        let path = identity.path();
        let gate_path = beside(path, ".lock");
        let gate = Gate::open(&gate_path).map_err(|e| {
            of_file("the side file has to be readable and writable by this user", &gate_path, e)
        })?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let named = |e: Error| e.with("file", path.display());
        let connection = Connection::open_with_flags(path, flags).map_err(of_statement).map_err(named)?;
        let boot = prepare(&connection, &gate, path, config, opening).map_err(named)?;
        if identity.is_away() {
            return Err(away(path));
        }
        let companions = Companions::of(path);
        Ok(StoreFile { connection, gate, boot, is_suspect: false, identity, companions })
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether the file and its companions are where they were; then the log's length in bytes.
    pub(super) fn look(&self) -> Result<u64, Displaced> {
        match self.identity.look() {
            Sight::Nothing | Sight::Another => Err(Displaced::File),
            Sight::There(Some(0)) => Err(Displaced::Emptied),
            Sight::There(_) => self.companions.look().map_err(Displaced::Companion),
        }
    }

    /// What callers are told. Should another file be in the place of ours, it gets a log of its own.
    pub(super) fn displaced(&self, what: Displaced) -> Error {
        let path = self.identity.path();
        match what {
            Displaced::File => {
                self.step_aside();
                away(path)
            }
            Displaced::Emptied => cut_off().with("file", path.display()),
            Displaced::Companion(_) => tampered(path),
        }
    }

    fn step_aside(&self) {
        if self.identity.look() == Sight::Another
            && let Some(log) = self.companions.step_aside()
        {
            tracing::warn!(
                target: "bus::sqlite", event = "log.aside", file = %self.identity.path().display(), log = %log.display(),
                "another file is in the place of the store's: the log, which belongs to the former one, was moved aside"
            );
        }
    }

    /// After the disk has failed: brings into the file what counts as committed, so that it can be opened anew.
    ///
    /// What counts is on the disk, in the log. What was written behind it may be readable and yet not be there; it must
    /// not be taken for a commit by whoever reads the log anew, since all that is committed later would stand or fall with
    /// it. So the log is not read anew before it has been copied.
    pub(super) fn take_in_log(&self) -> Result<()> {
        let _passage = self.gate.pass();
        checkpoint(&self.connection, "PASSIVE").map(drop).map_err(|e| self.failed(e))
    }

    /// After somebody has laid hands on the log or its index: brings into the file what else only those would know who
    /// have them open. Not if others have gone on with another log: then ours must not get into the file any more.
    pub(super) fn rescue_log(&self) -> Result<()> {
        let _passage = self.gate.pass();
        if self.look() != Err(Displaced::Companion(Tampering::Removed)) {
            return Ok(());
        }
        // As long as anyone reads from it nobody may begin another.
        match checkpoint(&self.connection, "TRUNCATE").map_err(|e| self.failed(e))? {
            true => Ok(()),
            false => Err(tampered(self.identity.path())),
        }
    }

    fn failed(&self, cause: rusqlite::Error) -> Error {
        of_statement(cause).with("file", self.identity.path().display())
    }

    /// Closes the connection and leaves everything as it is. (SQLite would copy the log and remove it.)
    pub(super) fn leave(self) {
        let no_checkpoint = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        if let Err(e) = self.connection.set_db_config(no_checkpoint, true) {
            tracing::debug!(target: "bus::sqlite", error = %e, "the log could not be kept from being copied");
        }
    }
}

/// Copies the log into the file; answers whether all of it.
pub(super) fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<bool> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        let (busy, length, copied): (bool, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(!busy && length == copied)
    })
}

/// The first time, or one more time in the life of a writer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opening {
    First,
    Again,
}

/// Makes the connection ready for use, and the file if it is a new one; answers the number of this boot.
fn prepare(
    connection: &Connection,
    gate: &Gate,
    path: &Path,
    config: &Config,
    opening: Opening,
) -> Result<i64> {
    connection.busy_timeout(config.busy_timeout).map_err(of_statement)?;
    // Outside of the gate only a yes counts: between the reads of one look somebody else may just make the file.
    if !matches!(schema::find(connection), Ok(Found::Current)) {
        let _passage = gate.pass();
        match schema::find(connection)? {
            Found::Current => {}
            // There were messages in it a moment ago.
            Found::Empty if opening == Opening::Again => return Err(cut_off()),
            Found::Empty if !config.create => return Err(no_store("the file is empty")),
            // The hosts that use it would have to end.
            Found::Older if !config.create => return Err(older()),
            Found::Empty | Found::Older => make(connection)?,
        }
    }
    configure(connection, path, config).map_err(of_statement)?;
    take_in_what_was_left(connection)?;
    register_boot(connection, gate)
}

/// Makes the tables, or brings them up to date. Called within the gate.
fn make(connection: &Connection) -> Result<()> {
    let file = connection.path().unwrap_or_default().to_owned();
    let was_here = beside(file.as_ref(), ".wake").exists();
    match schema::bring_up_to_date(connection)? {
        0 if was_here => tracing::warn!(
            target: "bus::sqlite", event = "file.new", %file,
            "a new, empty store was made, though there has been one here before: its file was missing or empty"
        ),
        0 => tracing::info!(target: "bus::sqlite", event = "file.new", %file, "a new store was made"),
        from => {
            tracing::info!(target: "bus::sqlite", event = "file.upgraded", %file, from, "the store's tables were brought up to date");
        }
    }
    Ok(())
}

fn configure(connection: &Connection, path: &Path, config: &Config) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "synchronous", config.synchronous.as_str())?;
    connection.pragma_update(None, "cache_size", -16 * 1024)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // 16 MiB of log between two checkpoints: each costs two more flushes, whatever it copies. Less on a small disk.
    let disk = path.parent().and_then(reserve::size_in);
    let pages = disk.map_or(4000, |size| (size / 4096).clamp(100, 4000));
    connection.query_row(&format!("PRAGMA wal_autocheckpoint = {pages}"), [], |_| Ok(()))?;
    // After a burst the log shrinks again.
    connection.query_row(&format!("PRAGMA journal_size_limit = {LOG_LIMIT}"), [], |_| Ok(()))
}

/// A process whose disk failed, and that ended then, may have left something in the log that can be read and is not on
/// the disk. Copied into the file it is written anew, so that no commit to come stands on it.
fn take_in_what_was_left(connection: &Connection) -> Result<()> {
    match checkpoint(connection, "PASSIVE") {
        Err(e) if is_of_disk(&e) => Err(of_statement(e)),
        // Somebody reads, or there is no room: then the log stays as it is for now.
        _ => Ok(()),
    }
}

fn register_boot(connection: &Connection, gate: &Gate) -> Result<i64> {
    let name = crate::clock::clock_id();
    let find = || {
        let boot = connection.query_row(include_str!("sql/boot_find.sql"), [name], |row| row.get(0));
        boot.optional().map_err(of_statement)
    };
    if let Some(boot) = find()? {
        return Ok(boot);
    }
    let _passage = gate.pass();
    connection.execute(include_str!("sql/boot_insert.sql"), [name]).map_err(of_statement)?;
    find()?.ok_or_else(|| error(ErrorKind::Internal, "this boot could not be registered"))
}
