//! Postgres, as Debian's packages or the path have it: in a directory of its own, as a user who is not root.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::error::{Doing, Error, Result};
use crate::port::free_port;
use crate::process::Process;

/// Where Debian's packages put the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// What it says when it takes connections.
const READY: &str = "database system is ready to accept connections";

/// The folder with `postgres` and `initdb`; `None` if they are not installed.
pub fn installed() -> Option<PathBuf> {
    let has = |folder: &PathBuf| folder.join("postgres").is_file() && folder.join("initdb").is_file();
    let mut versions: Vec<PathBuf> = fs::read_dir(VERSIONS)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    versions.sort();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    versions.into_iter().rev().chain(std::env::split_paths(&paths)).find(has)
}

/// Whom a server runs as: it refuses to be root.
fn user() -> Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").doing("cannot read who is not root")?;
    let find = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let user = find("postgres").or_else(|| find("nobody"));
    user.map(Some).ok_or_else(|| Error::unavailable("there is no user but root for Postgres to run as"))
}

/// Gives a file or directory to the user whom servers run as.
///
/// # Errors
/// When that cannot be done.
pub fn own(path: &Path) -> Result<()> {
    match user()? {
        Some((uid, gid)) => {
            chown(path, Some(uid), Some(gid)).doing(format_args!("cannot give away {}", path.display()))
        }
        None => Ok(()),
    }
}

/// A temporary directory that belongs to that user. Removed when dropped.
///
/// # Errors
/// When there is none to be had.
pub fn directory() -> Result<TempDir> {
    let directory = TempDir::with_prefix("bus-postgres-").doing("no temporary directory for Postgres")?;
    own(directory.path())?;
    Ok(directory)
}

fn program(name: &str) -> Result<Command> {
    let missing = || Error::unavailable("Postgres is not installed (apt-get install postgresql)");
    let mut command = Command::new(installed().ok_or_else(missing)?.join(name));
    if let Some((uid, gid)) = user()? {
        command.uid(uid).gid(gid);
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Makes the files of a server in the directory `data` within this one. Who connects is believed to be whom he says.
///
/// # Errors
/// When Postgres is missing, or cannot make them.
pub fn initialize(directory: &Path) -> Result<()> {
    let data = directory.join("data");
    let mut initdb = program("initdb")?;
    initdb.arg("--pgdata").arg(&data);
    initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
    match initdb.status().doing("cannot start initdb")?.success() {
        true => Ok(()),
        false => Err(Error::failed(format!("initdb failed in {}", data.display()))),
    }
}

/// The server whose files are in this directory, with these settings, each `name=value`. Says what it has to say on its
/// standard error.
///
/// # Errors
/// When Postgres is missing.
pub fn command(directory: &Path, port: u16, settings: &[String]) -> Result<Command> {
    let mut postgres = program("postgres")?;
    postgres.arg("-D").arg(directory.join("data"));
    let always = [
        format!("port={port}"),
        "listen_addresses=127.0.0.1".to_owned(),
        format!("unix_socket_directories={}", directory.display()),
        "max_connections=200".to_owned(),
        "logging_collector=off".to_owned(),
        "log_min_messages=warning".to_owned(),
    ];
    for setting in always.iter().chain(settings) {
        postgres.arg("-c").arg(setting);
    }
    Ok(postgres)
}

/// The address of a database on this machine.
pub fn url(port: u16, database: &str) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/{database}")
}

/// A server that flushes what it acknowledges. It ends when this value is dropped, and with this process, however that
/// ends.
#[derive(Debug)]
pub struct Postgres {
    _process: Process,
    port: u16,
    _directory: TempDir,
}

impl Postgres {
    /// Starts one, and waits until it takes connections.
    ///
    /// # Errors
    /// When Postgres is missing, or does not start.
    pub fn start() -> Result<Postgres> {
        let (directory, port) = (directory()?, free_port()?);
        initialize(directory.path())?;
        let command = command(directory.path(), port, &[])?;
        let mut process = Process::start(command, &directory.path().join("log"))?;
        process.until_said("Postgres does not start", |said| said.contains(READY).then_some(()))?;
        Ok(Postgres { _process: process, port, _directory: directory })
    }

    /// The address of its database, which has no password.
    pub fn url(&self) -> String {
        url(self.port, "postgres")
    }
}
