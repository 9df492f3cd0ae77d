//! Postgres servers of our own: in a temporary directory, on a free port, as a user who is not root.
//!
//! One server is [shared](Database::create) by all tests of a run, each in a database of its own; it is started by the
//! first and stops by itself soon after the last. A test that does something to its server starts [its own](Server::start).

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use bus_emulators::postgres::installed;
use bus_emulators::postgres::{self as emulators, url};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio_postgres::NoTls;

use crate::skip;
use crate::wait::{PATIENCE, until_stopped};

/// Whether a test that needs Postgres can run. Where it cannot, that is said; with `BUS_TEST_STRICT=1` it is a failure.
///
/// # Panics
/// If it must run and cannot.
pub fn available() -> bool {
    let found = installed().is_some();
    if !found {
        skip::not_run("Postgres is not installed (apt-get install postgresql)");
    }
    found
}

/// A server of one's own. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    directory: TempDir,
    port: u16,
    /// `None` while it is down.
    postmaster: Option<Child>,
    settings: Vec<String>,
}

fn postgres(directory: &Path, port: u16, settings: &[String]) -> Command {
    let mut postgres = emulators::command(directory, port, settings).expect("Postgres is installed");
    let log = File::options().create(true).append(true).open(directory.join("log")).expect("a log file");
    postgres.stderr(log);
    postgres
}

impl Server {
    /// Starts a server.
    ///
    /// # Panics
    /// If it does not come up.
    pub async fn start() -> Server {
        Server::start_with(&[]).await
    }

    /// Starts a server with these settings, each `name=value`.
    ///
    /// # Panics
    /// If it does not come up.
    pub async fn start_with(settings: &[&str]) -> Server {
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Server::start_in(emulators::directory().expect("a directory"), settings).await
    }

    /// Starts a server that encrypts, and answers the file of the certificate that it has signed itself, for 127.0.0.1.
    ///
    /// # Panics
    /// If it does not come up, or `openssl` cannot make a certificate.
    pub async fn start_encrypting() -> (Server, PathBuf) {
        let directory = emulators::directory().expect("a directory");
        let (certificate, key) = (directory.path().join("server.crt"), directory.path().join("server.key"));
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=127.0.0.1",
        ]);
        openssl.args([
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ]);
        openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate).stderr(Stdio::null());
        assert!(openssl.status().expect("openssl can be run").success(), "openssl made no certificate");
        fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("permissions");
        emulators::own(&key).expect("the key can be given away");
        let settings = vec![
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", certificate.display()),
            format!("ssl_key_file={}", key.display()),
        ];
        (Server::start_in(directory, settings).await, certificate)
    }

    async fn start_in(directory: TempDir, settings: Vec<String>) -> Server {
        emulators::initialize(directory.path()).expect("Postgres can be set up");
        let mut server = Server {
            directory,
            port: bus_emulators::free_port().expect("a free port"),
            postmaster: None,
            settings,
        };
        server.restart().await;
        server
    }

    /// Starts the server again after it was stopped or killed; answers when it takes connections.
    ///
    /// # Panics
    /// If it does not come up.
    pub async fn restart(&mut self) {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let mut postgres = postgres(self.directory.path(), self.port, &self.settings);
            self.postmaster = Some(postgres.spawn().expect("postgres can be run"));
            // Ends at once while processes of a killed predecessor still go down.
            while self.postmaster.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
                if connect(self.port, "postgres").await.is_ok() {
                    return;
                }
                assert!(began.elapsed() < PATIENCE, "the server does not come up: {}", self.log());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the server does not come up: {}", self.log());
    }

    /// What the server has written down.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the database that is always there.
    pub fn url(&self) -> String {
        url(self.port, "postgres")
    }

    /// Everything that belongs to the server: the postmaster and its children.
    fn processes(&self) -> Vec<u32> {
        let Some(postmaster) = &self.postmaster else { return Vec::new() };
        let id = postmaster.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        std::iter::once(id).chain(children.split_whitespace().filter_map(|id| id.parse().ok())).collect()
    }

    fn signal(&self, signal: Signal) {
        for id in self.processes() {
            let pid = i32::try_from(id).ok().and_then(Pid::from_raw).expect("a process id");
            // One that has ended meanwhile is as good as signalled.
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills all of it at once, as a crash of the machine would (but for what the system still writes to the disk).
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        if let Some(mut postmaster) = self.postmaster.take() {
            postmaster.wait().expect("a child can be waited for");
        }
    }

    /// Freezes all of it: connections stay, nothing answers.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        self.processes().into_iter().for_each(until_stopped);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// A connection of the test's own.
    ///
    /// # Panics
    /// If there is none to be had.
    pub async fn client(&self) -> tokio_postgres::Client {
        connect(self.port, "postgres").await.expect("the server takes connections")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn connect(port: u16, database: &str) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(&url(port, database), NoTls).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// Connects to a server that may still be coming up.
async fn patiently(port: u16) -> tokio_postgres::Client {
    let began = Instant::now();
    loop {
        match connect(port, "postgres").await {
            Ok(client) => return client,
            Err(e) => assert!(began.elapsed() < PATIENCE, "the server takes no connections: {e}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

// ---- The shared server -----------------------------------------------------------------------------------------

/// A database of the shared server. Dropped with this value.
#[derive(Debug)]
pub struct Database {
    port: u16,
    name: String,
}

impl Database {
    /// An empty database of one's own.
    ///
    /// # Panics
    /// If it cannot be made.
    pub async fn create() -> Database {
        let port = shared();
        let name = format!("test_{}", uuid::Uuid::new_v4().simple());
        let client = patiently(port).await;
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database can be made");
        Database { port, name }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        url(self.port, &self.name)
    }

    /// The port of its server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connection of the test's own.
    ///
    /// # Panics
    /// If there is none to be had.
    pub async fn client(&self) -> tokio_postgres::Client {
        connect(self.port, &self.name).await.expect("the shared server takes connections")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (port, name) = (self.port, self.name.clone());
        // A runtime of its own: this one may be ending.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(async {
                    if let Ok(client) = connect(port, "postgres").await {
                        // Whoever is still connected is a host that the test has let go.
                        let _ = client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
                    }
                });
            }
        });
        let _ = dropping.join();
    }
}

/// The port of the shared server, which is started if nobody has done so yet.
fn shared() -> u16 {
    static SHARED: OnceLock<(File, u16)> = OnceLock::new();
    SHARED.get_or_init(join_or_start).1
}

/// Each process that uses the server holds a shared lock on a file. A script that watches over the server tries to
/// get the whole lock now and then; when it does, nobody uses the server any more, and it is stopped.
fn join_or_start() -> (File, u16) {
    let id = rustix::process::geteuid().as_raw();
    let home = std::env::temp_dir().join(format!("bus-tests-postgres-{id}"));
    fs::create_dir_all(&home).expect("a directory");
    emulators::own(&home).expect("the directory can be given away");
    let users = File::options().create(true).append(true).open(home.join("users")).expect("a file");
    users.lock_shared().expect("a file can be locked");
    let starting = File::options().create(true).append(true).open(home.join("starting")).expect("a file");
    starting.lock().expect("a file can be locked");
    let port_file = home.join("port");
    let known = fs::read_to_string(&port_file).ok().and_then(|port| port.parse::<u16>().ok());
    if let Some(port) = known
        && std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
    {
        return (users, port);
    }
    let port = bus_emulators::free_port().expect("a free port");
    start_shared(&home, port);
    fs::write(&port_file, port.to_string()).expect("a file");
    (users, port)
}

fn start_shared(home: &Path, port: u16) {
    // Of one that was killed.
    let _ = fs::remove_dir_all(home.join("data"));
    emulators::initialize(home).expect("Postgres can be set up");
    let mut server = postgres(home, port, &["fsync=on".to_owned()]);
    server.process_group(0);
    let child = detach(&mut server);
    let began = Instant::now();
    while std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert!(
            began.elapsed() < PATIENCE,
            "the shared server does not come up, see {}",
            home.join("log").display()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let watch = format!(
        "exec 9>>'{home}/users'; while sleep 3; do if flock -n -x 9; then kill -INT {id}; rm -f '{home}/port'; exit; fi; done",
        home = home.display(),
        id = child,
    );
    let mut watch_over = Command::new("sh");
    watch_over.arg("-c").arg(watch).process_group(0);
    watch_over.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    detach(&mut watch_over);
}

/// Starts a process that outlives this one; answers its id.
#[allow(clippy::zombie_processes, reason = "it ends after this process, which nobody can wait for then")]
fn detach(command: &mut Command) -> u32 {
    command.spawn().expect("the program can be run").id()
}
