//! Azure Storage on this machine.

use std::net::Ipv4Addr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::error::{Doing, Error, Result};
use crate::install;
use crate::process::Process;
use crate::shared::Shared;
use crate::storage::Storage;

/// For how long a restart tries to get its ports back.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);

/// An [Azurite](https://github.com/Azure/Azurite) of its own: blobs, queues and tables on free ports of the loopback
/// address, over HTTP, for the well-known development account. Where it answers, [`Storage`] says.
///
/// Starting one takes one to two seconds on a quiet machine; the first one ever installs it by npm, which takes about
/// half a minute and needs the network. All methods that start, stop or restart block the thread.
///
/// It ends when this value is dropped, and with this process, however that ends.
#[derive(Debug)]
pub struct Azurite {
    program: PathBuf,
    process: Process,
    storage: Storage,
    /// Its log, and its content where that is kept.
    folder: TempDir,
    keeps_content: bool,
}

impl Deref for Azurite {
    type Target = Storage;

    fn deref(&self) -> &Storage {
        &self.storage
    }
}

impl Azurite {
    /// Starts one that keeps its content in memory: [`Azurite::kill`] and [`Azurite::restart`] lose it.
    ///
    /// # Errors
    /// When it cannot be installed, or does not start. See [`or_skip`](crate::or_skip).
    pub fn start() -> Result<Azurite> {
        Azurite::start_with(false)
    }

    /// Starts one that keeps its content in a temporary folder, for as long as this value lives, so that
    /// [`Azurite::restart`] loses nothing. [`Azurite::kill`] loses what was not saved yet: Azurite saves every few
    /// seconds.
    ///
    /// # Errors
    /// As [`Azurite::start`].
    pub fn start_with_files() -> Result<Azurite> {
        Azurite::start_with(true)
    }

    /// One for all tests, also those in other processes, of this build directory: the first to come starts it, and it
    /// ends a few seconds after the last one has gone. It cannot be killed or frozen; each test is to use containers and
    /// queues of its own, by names that nobody else comes to.
    ///
    /// # Errors
    /// As [`Azurite::start`]; the same each time.
    pub fn shared() -> Result<&'static Storage> {
        static SHARED: OnceLock<Result<Shared>> = OnceLock::new();
        SHARED.get_or_init(Shared::join).as_ref().map(|shared| &shared.storage).map_err(Error::clone)
    }

    fn start_with(keeps_content: bool) -> Result<Azurite> {
        let program = install::azurite()?.program;
        let folder = TempDir::with_prefix("azurite-").doing("no temporary folder for Azurite")?;
        // Port 0: the system chooses, and Azurite says what it got. So nobody can be quicker to take a free port.
        let (process, storage) = launch(&program, &folder, keeps_content, [0; 3])?;
        Ok(Azurite { program, process, storage, folder, keeps_content })
    }

    /// The id of its process, which another start changes.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills it, so that its ports refuse connections, until [`Azurite::restart`].
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Freezes it: connections are accepted by the kernel, and nobody answers, until [`Azurite::thaw`].
    ///
    /// # Errors
    /// When it is not running.
    pub fn freeze(&mut self) -> Result<()> {
        self.process.freeze()
    }

    /// Lets a frozen one go on; it then performs what was asked meanwhile, also if nobody waits for the answer.
    ///
    /// # Errors
    /// When it is not running.
    pub fn thaw(&mut self) -> Result<()> {
        self.process.thaw()
    }

    /// Ends it if it runs, and starts it again on the same ports, without its content unless that is kept in files.
    ///
    /// # Errors
    /// When it does not start, or its ports have been taken by somebody else.
    pub fn restart(&mut self) -> Result<()> {
        if self.keeps_content {
            self.process.end()?
        } else {
            self.kill()?
        }
        let started = Instant::now();
        let ports = self.storage.ports();
        loop {
            match launch(&self.program, &self.folder, self.keeps_content, ports) {
                Ok((process, _)) => {
                    self.process = process;
                    return Ok(());
                }
                // A connection of somebody's may have one of the ports for a moment.
                Err(_) if started.elapsed() < PATIENCE => thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Starts the process and waits until it says that it listens.
fn launch(
    program: &Path,
    folder: &TempDir,
    keeps_content: bool,
    ports: [u16; 3],
) -> Result<(Process, Storage)> {
    let folder = folder.path();
    let content = if keeps_content { Content::Files(folder) } else { Content::InMemory };
    let mut command = command(program, &content, ports);
    command.current_dir(folder);
    let mut process = Process::start(command, &folder.join("azurite.log"))?;
    let storage = process.until_said("Azurite does not start", Storage::said)?;
    Ok((process, storage))
}

/// Where an Azurite keeps its content.
#[derive(Debug)]
pub(crate) enum Content<'p> {
    InMemory,
    Files(&'p Path),
}

/// What runs Azurite on the ports for blobs, queues and tables; port 0 is one that the system chooses.
pub(crate) fn command(program: &Path, content: &Content<'_>, ports: [u16; 3]) -> Command {
    let mut command = Command::new("node");
    // The version that the newest clients speak is often one that Azurite does not know yet.
    command.arg(program).args(["--silent", "--disableTelemetry", "--skipApiVersionCheck"]);
    for (service, port) in ["blob", "queue", "table"].into_iter().zip(ports) {
        command.arg(format!("--{service}Host")).arg(Ipv4Addr::LOCALHOST.to_string());
        command.arg(format!("--{service}Port")).arg(port.to_string());
    }
    match content {
        Content::InMemory => command.arg("--inMemoryPersistence"),
        Content::Files(folder) => command.arg("--location").arg(folder),
    };
    command
}
