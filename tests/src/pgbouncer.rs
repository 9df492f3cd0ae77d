//! PgBouncers of our own, in transaction mode: each transaction may run in another session of the server.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::skip;
use crate::wait::PATIENCE;

/// What to install, if it is not.
pub fn missing() -> Option<&'static str> {
    let installed =
        ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].iter().any(|path| Path::new(path).is_file());
    (!installed).then_some("PgBouncer is not installed (apt-get install pgbouncer)")
}

/// Whether a test that needs it can run. Where it cannot, that is said; with `BUS_TEST_STRICT=1` it is a failure.
///
/// # Panics
/// If it must run and cannot.
pub fn available() -> bool {
    match missing() {
        None => true,
        Some(missing) => {
            skip::not_run(missing);
            false
        }
    }
}

/// A pooler before a server on this machine. Killed when dropped.
#[derive(Debug)]
pub struct PgBouncer {
    child: Child,
    port: u16,
    _directory: TempDir,
}

impl PgBouncer {
    /// Starts one before the server on a port. Few sessions of the server's are shared by many: whatever is left in one is
    /// met by others.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start(server: u16) -> PgBouncer {
        let directory = tempfile::tempdir().expect("a directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
        let port = bus_emulators::free_port().expect("a free port");
        let config = directory.path().join("pgbouncer.ini");
        let users = directory.path().join("users.txt");
        fs::write(&users, "\"postgres\" \"\"\n").expect("a file");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = 3\n\
             server_round_robin = 1\nmax_client_conn = 200\n",
            users.display()
        );
        fs::write(&config, text).expect("a file");
        let mut command = Command::new("pgbouncer");
        command.env("PATH", "/usr/sbin:/usr/bin").arg(&config);
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "nobody"]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("PgBouncer can be run");
        let pooler = PgBouncer { child, port, _directory: directory };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < PATIENCE, "PgBouncer does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        pooler
    }

    /// The URL of a database of the server's.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
