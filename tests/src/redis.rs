//! A Redis server of a test's own: on a free port, in a temporary directory, to be killed, frozen, started again.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bus_emulators::redis::command;
pub use bus_emulators::redis::{DURABLE, missing};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::served::Server;
use crate::skip::not_run;
use crate::wait::until_stopped;

/// What forgets everything when it ends.
pub const FORGETFUL: &[&str] = &["--appendonly", "no"];

/// Longer than a server takes to start, also on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server. Killed when dropped.
#[derive(Debug)]
pub struct Redis {
    directory: tempfile::TempDir,
    port: u16,
    settings: Vec<String>,
    child: Mutex<Option<Child>>,
}

impl Redis {
    /// Starts one and waits until it answers.
    ///
    /// # Panics
    /// If there is none to be started.
    pub fn start(settings: &[&str]) -> Redis {
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let directory = tempfile::tempdir().expect("a temporary directory");
        let redis = Redis {
            directory,
            port: bus_emulators::free_port().expect("a free port"),
            settings,
            child: Mutex::new(None),
        };
        redis.start_again();
        redis
    }

    /// Starts it again on the same port, with what it has on its disk.
    ///
    /// # Panics
    /// If it is still there.
    pub fn start_again(&self) {
        assert!(self.child.lock().is_none(), "the server is still there");
        let child = command(self.directory.path(), self.port)
            .arg("--logfile")
            .arg(self.log())
            .args(&self.settings)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server can be started");
        *self.child.lock() = Some(child);
        let deadline = Instant::now() + PATIENCE;
        while !self.is_up() {
            assert!(Instant::now() < deadline, "the server does not answer; its log: {:?}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether it has loaded its data and answers, be it that it wants a password.
    fn is_up(&self) -> bool {
        match self.query::<String>(&["PING"]) {
            Ok(_) => true,
            Err(error) => !error.is_io_error() && error.code() != Some("LOADING"),
        }
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address for a host, with a prefix for the keys.
    pub fn url(&self, prefix: &str) -> String {
        url_at(self.port, prefix)
    }

    /// Asks the server, by a connection that is made for it: what is asked is one command.
    ///
    /// # Errors
    /// What the driver says.
    pub fn query<T: redis::FromRedisValue>(&self, command: &[&str]) -> redis::RedisResult<T> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", self.port))?;
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(2))?;
        connection.set_read_timeout(Some(Duration::from_secs(2)))?;
        redis::cmd(command[0]).arg(&command[1..]).query(&mut connection)
    }

    /// [`query`](Redis::query) where no error is expected.
    ///
    /// # Panics
    /// If there is one.
    pub fn ask<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        self.query(command).unwrap_or_else(|e| panic!("{command:?}: {e}"))
    }

    /// Sends it a signal; answers its id.
    fn signal(&self, signal: Signal) -> u32 {
        let child = self.child.lock();
        let id = child.as_ref().expect("the server is there").id();
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("a child can be sent signals");
        id
    }

    /// Freezes it: its connections stay, and nothing is answered.
    pub fn freeze(&self) {
        until_stopped(self.signal(Signal::STOP));
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends it without a word.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().take() {
            child.kill().expect("a child can be killed");
            child.wait().expect("a child can be waited for");
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // A frozen process can be killed too.
        self.kill();
    }
}

/// A server with these settings; `None` where there is none to be had, which has been said then.
///
/// # Panics
/// With `BUS_TEST_STRICT=1`, if there is none.
pub fn start_if_there(settings: &[&str]) -> Option<Redis> {
    match missing() {
        None => Some(Redis::start(settings)),
        Some(missing) => {
            not_run(missing);
            None
        }
    }
}

impl Server for Redis {
    fn quick() -> Option<Redis> {
        start_if_there(FORGETFUL)
    }

    fn durable() -> Option<Redis> {
        start_if_there(DURABLE)
    }

    fn url_at(port: u16, prefix: &str) -> String {
        url_at(port, prefix)
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn kill(&self) {
        Redis::kill(self);
    }

    fn start_again(&self) {
        Redis::start_again(self);
    }

    fn freeze(&self) {
        Redis::freeze(self);
    }

    fn thaw(&self) {
        Redis::thaw(self);
    }
}

/// The address of a server on this machine, with a prefix for the keys.
pub fn url_at(port: u16, prefix: &str) -> String {
    format!("redis://127.0.0.1:{port}/0?prefix={prefix}")
}
