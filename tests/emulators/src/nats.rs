//! NATS with JetStream, as Debian's package or the path has it.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::error::{Doing, Error, Result};
use crate::port::free_port;
use crate::process::Process;

/// What it says when it takes connections.
const READY: &str = "Server is ready";

/// The server's program: the first in the path, or where Debian keeps it, which only the administrator's path leads to.
pub fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join("nats-server"));
    programs.find(|program| program.is_file()).unwrap_or_else(|| PathBuf::from("/usr/sbin/nats-server"))
}

/// Why there is no server to be had; `None` if there is one.
pub fn missing() -> Option<String> {
    match Command::new(program()).arg("--version").output() {
        Ok(_) => None,
        Err(e) => Some(format!("nats-server cannot be run ({e}): install the package nats-server")),
    }
}

/// A server. It ends when this value is dropped, and with this process, however that ends.
#[derive(Debug)]
pub struct Nats {
    _process: Process,
    port: u16,
    _directory: TempDir,
}

impl Nats {
    /// Starts one, and waits until it takes connections.
    ///
    /// # Errors
    /// When NATS is missing, or does not start.
    pub fn start() -> Result<Nats> {
        if let Some(missing) = missing() {
            return Err(Error::unavailable(missing));
        }
        let directory = TempDir::with_prefix("bus-nats-").doing("no temporary directory for NATS")?;
        let port = free_port()?;
        let mut command = Command::new(program());
        command.args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream"]);
        command.arg("--store_dir").arg(directory.path());
        let mut process = Process::start(command, &directory.path().join("log"))?;
        process.until_said("NATS does not start", |said| said.contains(READY).then_some(()))?;
        Ok(Nats { _process: process, port, _directory: directory })
    }

    /// Its address, where nobody needs to log in.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}
