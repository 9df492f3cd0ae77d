//! A NATS server of a test's own: on a free port, in a temporary directory, to be killed, frozen, started again.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bus_emulators::free_port;
pub use bus_emulators::nats::missing;
use bus_emulators::nats::program;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::served::Server;
use crate::shim::GoClock;
use crate::skip::not_run;
use crate::wait::until_stopped;

/// Longer than a server takes to start, also on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server. Killed when dropped.
#[derive(Debug)]
pub struct Nats {
    directory: tempfile::TempDir,
    port: u16,
    monitoring: u16,
    /// More lines for its configuration, and more for that of JetStream.
    settings: (String, String),
    /// What it finds in its environment.
    environment: Vec<(&'static str, PathBuf)>,
    child: Mutex<Option<Child>>,
}

impl Nats {
    /// Starts one with JetStream and waits until it answers.
    ///
    /// # Panics
    /// If there is none to be started.
    pub fn start() -> Nats {
        Nats::start_with("")
    }

    /// The same with more lines for its configuration.
    ///
    /// # Panics
    /// If there is none to be started.
    pub fn start_with(settings: &str) -> Nats {
        Nats::start_configured(settings, "", Vec::new())
    }

    /// The same with more settings of JetStream, each after a comma.
    ///
    /// # Panics
    /// If there is none to be started.
    pub fn start_with_jetstream(settings: &str) -> Nats {
        Nats::start_configured("", settings, Vec::new())
    }

    /// The same that goes by this clock.
    ///
    /// # Panics
    /// If there is none to be started.
    pub fn start_by(clock: &GoClock) -> Nats {
        Nats::start_configured("", "", clock.environment())
    }

    fn start_configured(
        settings: &str,
        of_jetstream: &str,
        environment: Vec<(&'static str, PathBuf)>,
    ) -> Nats {
        loop {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let (port, monitoring) = (free_port().expect("a free port"), free_port().expect("a free port"));
            let settings = (settings.to_owned(), of_jetstream.to_owned());
            let environment = environment.clone();
            let nats = Nats { directory, port, monitoring, settings, environment, child: Mutex::new(None) };
            // Somebody else may have taken a port meanwhile.
            if nats.try_start() {
                return nats;
            }
        }
    }

    /// Starts it again on the same port, with what it has on its disk.
    ///
    /// # Panics
    /// If it is still there.
    pub fn start_again(&self) {
        assert!(self.try_start(), "the server ends at once; its log: {:?}", self.log());
    }

    /// Whether it has come up, and not ended at once.
    fn try_start(&self) -> bool {
        assert!(self.child.lock().is_none(), "the server is still there");
        let child = Command::new(program())
            .arg("--config")
            .arg(self.write_config())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server can be started");
        *self.child.lock() = Some(child);
        let deadline = Instant::now() + PATIENCE;
        while !self.is_up() {
            if self.has_ended() {
                return false;
            }
            assert!(Instant::now() < deadline, "the server does not answer; its log: {:?}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    fn has_ended(&self) -> bool {
        let mut child = self.child.lock();
        let ended = child.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|status| status.is_some()));
        if ended {
            *child = None;
        }
        ended
    }

    fn write_config(&self) -> PathBuf {
        let file = self.directory.path().join("config");
        let config = format!(
            "listen: \"127.0.0.1:{}\"\nhttp: \"127.0.0.1:{}\"\nlog_file: {:?}\n\
             jetstream {{ store_dir: {:?}, max_file_store: 4G, max_memory_store: 64M{} }}\n{}\n",
            self.port,
            self.monitoring,
            self.log(),
            self.directory.path(),
            self.settings.1,
            self.settings.0
        );
        std::fs::write(&file, config).expect("a configuration can be written");
        file
    }

    /// Whether it has recovered its streams and takes connections.
    fn is_up(&self) -> bool {
        self.monitor("healthz").is_ok() && TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address for a host, with a prefix for the names.
    pub fn url(&self, prefix: &str) -> String {
        url_at(self.port, prefix)
    }

    /// What its monitoring says.
    ///
    /// # Errors
    /// If it says nothing, or no good.
    pub fn monitor(&self, page: &str) -> std::io::Result<Value> {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, self.monitoring))?;
        connection.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(connection, "GET /{page} HTTP/1.0\r\n\r\n")?;
        let mut answer = BufReader::new(connection);
        let mut status = String::new();
        answer.read_line(&mut status)?;
        if !status.contains(" 200 ") {
            return Err(std::io::Error::other(status));
        }
        let mut line = String::new();
        while answer.read_line(&mut line)? > 2 {
            line.clear();
        }
        serde_json::from_reader(answer).map_err(std::io::Error::other)
    }

    /// How many messages clients have sent it.
    ///
    /// # Panics
    /// If it does not say.
    pub fn messages_in(&self) -> u64 {
        self.monitor("varz").expect("the server is there")["in_msgs"].as_u64().expect("a count")
    }

    /// A request to JetStream, by a connection that is made for it; its answer.
    ///
    /// # Panics
    /// If there is none.
    pub async fn ask(&self, operation: &str, what: &Value) -> Value {
        let payload = if what.is_null() { String::new() } else { what.to_string() };
        let answer = self
            .client()
            .await
            .request(format!("$JS.API.{operation}"), payload.into())
            .await
            .expect("JetStream answers");
        serde_json::from_slice(&answer.payload).expect("JetStream writes JSON")
    }

    /// A connection by the driver.
    ///
    /// # Panics
    /// If there is none to be had.
    pub async fn client(&self) -> async_nats::Client {
        async_nats::connect(format!("127.0.0.1:{}", self.port)).await.expect("a connection")
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

    /// Takes away everything on its disk, while it is not there.
    ///
    /// # Panics
    /// If it is still there, or the disk refuses.
    pub fn lose_data(&self) {
        assert!(self.child.lock().is_none(), "the server is still there");
        std::fs::remove_dir_all(self.directory.path().join("jetstream")).expect("it has kept something");
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        // A frozen process can be killed too.
        self.kill();
    }
}

impl Server for Nats {
    fn quick() -> Option<Nats> {
        match missing() {
            None => Some(Nats::start()),
            Some(missing) => {
                not_run(missing);
                None
            }
        }
    }

    // What it acknowledges it has written.
    fn durable() -> Option<Nats> {
        Nats::quick()
    }

    fn url_at(port: u16, prefix: &str) -> String {
        url_at(port, prefix)
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn kill(&self) {
        Nats::kill(self);
    }

    fn start_again(&self) {
        Nats::start_again(self);
    }

    fn freeze(&self) {
        Nats::freeze(self);
    }

    fn thaw(&self) {
        Nats::thaw(self);
    }
}

/// The address of a server on this machine, with a prefix for the names.
pub fn url_at(port: u16, prefix: &str) -> String {
    format!("nats://127.0.0.1:{port}?prefix={prefix}")
}
