//! What a `postgres://` URL says.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::error::error;
use crate::contract::StoreUrl;
use crate::error::{Error, ErrorKind, Result};

/// The longest that an attempt to connect may take, the log-in included. Short, so that a server that is back after an
/// outage is found soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Of that, for each address that a host's name stands for.
const ADDRESS_TIMEOUT: Duration = Duration::from_millis(1500);
/// After this long without an answer the kernel gives a connection up.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_RETRIES: u32 = 3;

/// A store to be opened.
#[derive(Clone)]
pub(super) struct Config {
    /// Where to connect to, and as whom. Holds the password.
    pub(super) servers: Servers,
    /// The schema that holds the tables.
    pub(super) schema: Schema,
    /// The largest body that is taken, in bytes.
    pub(super) max_body: usize,
    /// How many connections consumers share at most.
    pub(super) connections: usize,
    /// How long the server may take to answer one call.
    pub(super) deadline: Duration,
    /// Whether what is sent in a user's own transaction notifies when that commits.
    pub(super) notify_in_transactions: bool,
    /// How the connection is kept secret.
    pub(super) tls: Tls,
}

/// The servers of the URL, of which one takes writes.
#[derive(Clone)]
pub(super) struct Servers {
    drivers: Vec<tokio_postgres::Config>,
    /// The one that has let us in last.
    good: Arc<AtomicUsize>,
}

/// One of the servers.
pub(super) struct Server<'s> {
    pub(super) driver: &'s tokio_postgres::Config,
    at: usize,
    good: &'s AtomicUsize,
}

impl Servers {
    /// All of them, each with a time of its own: to the driver one that takes the connection and then is silent would
    /// be the last. Of several, one that is read-only is passed over, as a former primary may have become.
    fn of(all: &tokio_postgres::Config) -> Self {
        let several = all.get_hosts().len() > 1;
        let one = |(at, host): (usize, &Host)| {
            let mut driver = tokio_postgres::Config::new();
            match host {
                Host::Tcp(name) => driver.host(name),
                #[cfg(unix)]
                Host::Unix(path) => driver.host_path(path),
            };
            let ports = all.get_ports();
            driver.port(ports.get(at).or(ports.first()).copied().unwrap_or(5432));
            driver.application_name("bus");
            all.get_user().map(|user| driver.user(user));
            all.get_password().map(|password| driver.password(password));
            all.get_dbname().map(|database| driver.dbname(database));
            driver
                .connect_timeout(ADDRESS_TIMEOUT)
                .tcp_user_timeout(TCP_USER_TIMEOUT)
                .keepalives(true)
                .keepalives_idle(KEEPALIVE_IDLE)
                .keepalives_interval(KEEPALIVE_INTERVAL)
                .keepalives_retries(KEEPALIVE_RETRIES);
            if several {
                driver.target_session_attrs(TargetSessionAttrs::ReadWrite);
            }
            driver
        };
        let drivers = all.get_hosts().iter().enumerate().map(one).collect();
        Servers { drivers, good: Arc::default() }
    }

    /// All of them once, beginning with the one that was good last.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = Server<'_>> {
        let first = self.good.load(Ordering::Relaxed);
        let from_first = self.drivers.iter().enumerate().cycle().skip(first).take(self.drivers.len());
        from_first.map(|(at, driver)| Server { driver, at, good: &self.good })
    }
}

impl Server<'_> {
    /// It has let us in: the next one asks here first.
    pub(super) fn is_good(&self) {
        self.good.store(self.at, Ordering::Relaxed);
    }
}

/// How a connection is kept secret.
#[derive(Clone)]
pub(super) enum Tls {
    /// Not at all.
    Off,
    /// By TLS; the server's certificate must be of a trusted root and of the host's name.
    #[cfg(feature = "postgres-tls")]
    VerifyFull(tokio_postgres_rustls::MakeRustlsConnect),
}

/// The name of the schema that holds the tables: a plain lower-case identifier, so that it can stand in a statement
/// without quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Schema(String);

impl Schema {
    /// Checks and takes a name.
    pub(super) fn new(name: &str) -> Result<Self> {
        let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        // The server cuts longer names off, and keeps those with pg_ for itself.
        if !plain || name.len() > 40 || name.starts_with("pg_") {
            return Err(bad("schema is 1 to 40 of a-z, 0-9 and _, and begins with neither a digit nor pg_")
                .with("schema", name));
        }
        Ok(Schema(name.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Config {
    const MAX_BODY: usize = 16 << 20;
    /// What the server takes in one value, with room for the batch that it travels in.
    const LARGEST_MAX_BODY: usize = 256 << 20;
    const CONNECTIONS: usize = 4;
    const DEADLINE: Duration = Duration::from_secs(10);

    /// Reads `postgres://user:password@host:port/database[?schema=…&…]`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], saying which part is wrong and what would be right; never with the password.
    pub(super) fn from_url(url: &StoreUrl) -> Result<Self> {
        url.allow_params(&[
            "schema",
            "sslmode",
            "sslrootcert",
            "max_body",
            "connections",
            "timeout",
            "notify_in_transactions",
        ])?;
        check_ats(url.rest())?;
        let all = tokio_postgres::Config::from_str(&format!("postgres://{}", url.rest()))
            .map_err(|e| bad("the URL is postgres://user:password@host:port/database, each part percent-encoded where it has one of :/@?# in it").caused_by(e))?;
        let hosts = all.get_hosts().len();
        if hosts == 0 {
            return Err(bad("the URL names no host: write postgres://user:password@host/database"));
        }
        if all.get_ports().len() > 1 && all.get_ports().len() != hosts {
            return Err(bad("of several hosts each one has a port, or none"));
        }
        let mut servers = Servers::of(&all);
        let tls = tls(url)?;
        let encryption = if matches!(tls, Tls::Off) { SslMode::Disable } else { SslMode::Require };
        for driver in &mut servers.drivers {
            driver.ssl_mode(encryption);
        }
        Ok(Config {
            servers,
            schema: Schema::new(url.params().get("schema").map_or("bus", String::as_str))?,
            max_body: url.number("max_body", Self::MAX_BODY, 1..=Self::LARGEST_MAX_BODY)?,
            connections: url.number("connections", Self::CONNECTIONS, 1..=100)?,
            deadline: Duration::from_secs(url.number("timeout", Self::DEADLINE.as_secs(), 1..=600)?),
            notify_in_transactions: switch(url, "notify_in_transactions")?,
            tls,
        })
    }

    /// How long an attempt to connect to one server may take.
    pub(super) fn connect_timeout(&self) -> Duration {
        CONNECT_TIMEOUT.min(self.deadline)
    }

    /// Hosts, ports and database, for people.
    pub(super) fn place(&self) -> String {
        let place = |driver: &tokio_postgres::Config| {
            let port = driver.get_ports().first().copied().unwrap_or(5432);
            match driver.get_hosts().first() {
                Some(Host::Tcp(name)) => format!("{name}:{port}"),
                #[cfg(unix)]
                Some(Host::Unix(path)) => format!("{}:{port}", path.display()),
                None => String::new(),
            }
        };
        let drivers = &self.servers.drivers;
        let first = drivers.first();
        let database = first.and_then(|driver| driver.get_dbname().or(driver.get_user())).unwrap_or_default();
        format!("{}/{database}", drivers.iter().map(place).collect::<Vec<_>>().join(","))
    }
}

/// Refuses what can only be a password that is not percent-encoded, before any of it is taken for a host.
fn check_ats(rest: &str) -> Result<()> {
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    if rest.matches('@').count() > 1 || path.contains('@') {
        return Err(bad(
            "there is an @ too many: in a user, a password or a name it is written %40, and / is written %2F",
        ));
    }
    Ok(())
}

/// Shows no password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("place", &self.place())
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// What is off unless it is turned on.
fn switch(url: &StoreUrl, name: &'static str) -> Result<bool> {
    match url.params().get(name).map(String::as_str) {
        None | Some("off") => Ok(false),
        Some("on") => Ok(true),
        Some(other) => Err(bad("this parameter is on or off").with("parameter", name).with("value", other)),
    }
}

fn tls(url: &StoreUrl) -> Result<Tls> {
    let mode = url.params().get("sslmode").map(String::as_str);
    let roots = url.params().get("sslrootcert").map(std::path::Path::new);
    match (mode, roots) {
        (None | Some("disable"), None) => Ok(Tls::Off),
        (None | Some("verify-full"), roots) => verify_full(roots),
        (Some("disable"), Some(_)) => Err(bad("sslrootcert has no meaning with sslmode=disable")),
        (Some(other), _) => {
            Err(bad("sslmode is disable or verify-full: a certificate that nobody checks keeps nobody out")
                .with("sslmode", other))
        }
    }
}

#[cfg(feature = "postgres-tls")]
fn verify_full(roots: Option<&std::path::Path>) -> Result<Tls> {
    super::tls::connector(roots).map(Tls::VerifyFull)
}

#[cfg(not(feature = "postgres-tls"))]
fn verify_full(_roots: Option<&std::path::Path>) -> Result<Tls> {
    Err(bad("sslmode=verify-full needs the feature `postgres-tls` of `bus` in this binary"))
}

fn bad(message: &'static str) -> Error {
    error(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config> {
        Config::from_url(&StoreUrl::parse(url)?)
    }

    #[test]
    fn an_address_alone_is_enough() {
        let config = read("postgres://shop:p%40ss@db.internal:5433/orders").unwrap();
        assert_eq!(config.place(), "db.internal:5433/orders");
        assert_eq!(config.schema.as_str(), "bus");
        assert_eq!(config.servers.drivers[0].get_password(), Some(&b"p@ss"[..]));
        assert_eq!((config.max_body, config.connections), (16 << 20, 4));
        assert_eq!(
            read("postgres://u@%2Fvar%2Frun%2Fpostgresql/orders").unwrap().place(),
            "/var/run/postgresql:5432/orders"
        );
    }

    #[test]
    fn parameters_are_read_and_wrong_ones_named() {
        let config = read("postgres://u@h/d?schema=bus_2&max_body=1024&connections=2&timeout=3").unwrap();
        assert_eq!((config.schema.as_str(), config.max_body, config.connections), ("bus_2", 1024, 2));
        assert_eq!(config.deadline, Duration::from_secs(3));
        assert!(!config.notify_in_transactions);
        assert!(read("postgres://u@h/d?notify_in_transactions=on").unwrap().notify_in_transactions);
        for (url, named) in [
            ("postgres://u@h/d?schema=Bus", "Bus"),
            ("postgres://u@h/d?schema=a\"b", "schema"),
            ("postgres://u@h/d?schema=pg_bus", "pg_"),
            ("postgres://u@h/d?max_body=0", "max_body"),
            ("postgres://u@h/d?connections=many", "many"),
            ("postgres://u@h/d?notify_in_transactions=perhaps", "perhaps"),
            ("postgres://u@h/d?sslmode=prefer", "prefer"),
            ("postgres://u@h/d?application_name=x", "application_name"),
            ("postgres://", "host"),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(error.to_string().contains(named), "{url}: {error}");
        }
    }

    #[test]
    fn the_password_is_shown_nowhere() {
        let config = read("postgres://u:s3cret@h/d").unwrap();
        assert!(!format!("{config:?}").contains("s3cret"));
        for url in [
            "postgres://u:s3cret@h:port/d",
            "postgres://u:p@s3cret@h/d",
            "postgres://u:1/s3cret@h/d",
            "postgres://u:1/p@s3cret@h/d",
            "postgres://u:p?s3cret=1@h/d",
            "postgres://u:p?S3CRET=1",
            "postgres://u:p?secret=1@h/d",
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(!format!("{error:?}").to_ascii_lowercase().contains("cret"), "{error:?}");
        }
    }

    #[test]
    fn each_server_is_tried_by_itself_and_the_good_one_first() {
        let config = read("postgres://u@a:1,b:2,c:3/d").unwrap();
        assert_eq!(config.place(), "a:1,b:2,c:3/d");
        let ports = |config: &Config| {
            config.servers.in_turn().map(|one| one.driver.get_ports()[0]).collect::<Vec<_>>()
        };
        assert_eq!(ports(&config), [1, 2, 3]);
        config.servers.in_turn().nth(1).unwrap().is_good();
        assert_eq!(ports(&config), [2, 3, 1]);
        assert_eq!(ports(&read("postgres://u@a:1,b:2,c/d").unwrap()), [1, 2, 5432]);
    }
}
