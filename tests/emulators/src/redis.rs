//! Redis, as the path has it.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::error::{Doing, Error, Result};
use crate::port::free_port;
use crate::process::Process;

/// What keeps what it has acknowledged across its restart.
pub const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];
/// What it says when it takes connections.
const READY: &str = "Ready to accept connections";

/// Why there is no server to be had; `None` if there is one.
pub fn missing() -> Option<String> {
    match Command::new("redis-server").arg("--version").output() {
        Ok(_) => None,
        Err(e) => Some(format!("redis-server cannot be run ({e}): install the package redis-server")),
    }
}

/// A server whose files are in this directory. Says what it has to say on its standard output.
pub fn command(directory: &Path, port: u16) -> Command {
    let mut redis = Command::new("redis-server");
    redis.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
    redis.arg("--dir").arg(directory).stdin(Stdio::null());
    redis
}

/// A server that flushes what it acknowledges. It ends when this value is dropped, and with this process, however that
/// ends.
#[derive(Debug)]
pub struct Redis {
    _process: Process,
    port: u16,
    _directory: TempDir,
}

impl Redis {
    /// Starts one, and waits until it takes connections.
    ///
    /// # Errors
    /// When Redis is missing, or does not start.
    pub fn start() -> Result<Redis> {
        if let Some(missing) = missing() {
            return Err(Error::unavailable(missing));
        }
        let directory = TempDir::with_prefix("bus-redis-").doing("no temporary directory for Redis")?;
        let port = free_port()?;
        let mut command = command(directory.path(), port);
        command.args(DURABLE);
        let mut process = Process::start(command, &directory.path().join("log"))?;
        process.until_said("Redis does not start", |said| said.contains(READY).then_some(()))?;
        Ok(Redis { _process: process, port, _directory: directory })
    }

    /// Its address, which has no password.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }
}
