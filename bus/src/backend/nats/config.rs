//! What a `nats://` URL says.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::ServerAddr;

use super::error::error;
use crate::contract::StoreUrl;
use crate::error::{Error, ErrorKind, Result};

/// A store to be opened.
#[derive(Clone)]
pub(super) struct Config {
    /// Where to connect: any of these.
    pub(super) servers: Vec<ServerAddr>,
    /// As whom. Never shown.
    pub(super) login: Login,
    /// `host:port,host:port`, for people.
    pub(super) address: String,
    /// What the names of all streams and subjects begin with.
    pub(super) prefix: String,
    /// How many servers keep each stream.
    pub(super) replicas: usize,
    /// The JetStream domain, where it is not the server's own.
    pub(super) domain: Option<String>,
    /// How long a call may take.
    pub(super) timeout: Duration,
    /// Whether an unencrypted connection is refused.
    pub(super) is_encrypted: bool,
    /// Whom to trust instead of the system's authorities: a file with certificates as PEM.
    pub(super) authority: Option<PathBuf>,
}

/// As whom to connect.
#[derive(Clone)]
pub(super) enum Login {
    Nobody,
    User {
        user: String,
        password: String,
    },
    Token(String),
    /// A file with a user's JWT and key.
    Credentials(PathBuf),
}

const PARAMS: &[&str] = &["prefix", "replicas", "domain", "timeout", "tls", "ca", "credentials"];

impl Config {
    const PREFIX: &str = "bus";
    const TIMEOUT_MILLIS: u64 = 5_000;

    /// Reads `nats://[user:password@|token@]host[:port][,host[:port]…][?…]`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], saying which part is wrong and what would be right.
    pub(super) fn from_url(url: &StoreUrl) -> Result<Self> {
        url.allow_params(PARAMS)?;
        let (login, hosts) = match url.rest().rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, url.rest()),
        };
        let param = |name: &str| url.params().get(name);
        let credentials = param("credentials").map(PathBuf::from);
        let login = match (login, credentials) {
            (Some(_), Some(_)) => return Err(bad("write either user:password@ or credentials=file")),
            (None, Some(file)) => Login::Credentials(file),
            (login, None) => read_login(login)?,
        };
        let servers = read_servers(hosts)?;
        let address = servers.iter().map(|server| format!("{}:{}", server.host(), server.port()));
        // One store has one name, in whatever order its servers are listed.
        let address: BTreeSet<String> = address.collect();
        let is_encrypted = match param("tls").map(String::as_str) {
            None => param("ca").is_some(),
            Some("true") => true,
            Some("false") if param("ca").is_none() => false,
            Some(_) => return Err(bad("tls is true or false, and true where there is a ca")),
        };
        Ok(Config {
            address: address.into_iter().collect::<Vec<_>>().join(","),
            servers,
            login,
            prefix: read_prefix(url)?,
            replicas: url.number("replicas", 1, 1..=5)?,
            domain: param("domain").cloned(),
            timeout: Duration::from_millis(url.number("timeout", Self::TIMEOUT_MILLIS, 100..=60_000)?),
            is_encrypted,
            authority: param("ca").map(PathBuf::from),
        })
    }

    /// The store's address without credentials, beginning with the scheme and what is to follow it.
    pub(super) fn shown(&self, after_scheme: &str) -> String {
        let address = format!("nats{after_scheme}{}", self.address);
        if self.prefix == Self::PREFIX { address } else { format!("{address}?prefix={}", self.prefix) }
    }
}

fn read_login(login: Option<&str>) -> Result<Login> {
    // The cause is not shown: it may repeat what was written, the password included.
    let decoded = |text: &str| decode(text).ok_or_else(|| bad("the user or the password cannot be read"));
    Ok(match login.map(|login| login.split_once(':').ok_or(login)) {
        None => Login::Nobody,
        Some(Ok((user, password))) => Login::User { user: decoded(user)?, password: decoded(password)? },
        Some(Err(token)) => Login::Token(decoded(token)?),
    })
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

fn read_servers(hosts: &str) -> Result<Vec<ServerAddr>> {
    let unreadable =
        || bad("the address cannot be read: write nats://user:password@host:4222,other-host:4222");
    let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
    let read = |host: &str| {
        if host.is_empty() || host.starts_with(':') || host.contains(['/', '#']) {
            return Err(unreadable());
        }
        format!("nats://{host}").parse::<ServerAddr>().map_err(|_| unreadable())
    };
    hosts.split(',').map(read).collect()
}

fn read_prefix(url: &StoreUrl) -> Result<String> {
    let prefix = url.params().get("prefix").map_or(Config::PREFIX, String::as_str);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if prefix.is_empty() || prefix.len() > 64 || !prefix.chars().all(is_plain) {
        return Err(bad("prefix is of 1 to 64 letters, digits and '-'").with("prefix", prefix));
    }
    Ok(prefix.to_owned())
}

fn bad(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    error(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config> {
        Config::from_url(&StoreUrl::parse(url)?)
    }

    #[test]
    fn an_address_alone_has_the_usual_values() {
        let config = read("nats://localhost").unwrap();
        assert_eq!(config.shown("://"), "nats://localhost:4222");
        assert_eq!((config.prefix.as_str(), config.replicas), ("bus", 1));
        assert_eq!(config.timeout, Duration::from_secs(5));
        assert!(!config.is_encrypted);
        assert!(read("nats://localhost?ca=ca.pem").unwrap().is_encrypted);
    }

    /// It is part of the names of locks.
    #[test]
    fn the_order_of_the_servers_makes_no_other_store() {
        let [one, other] = ["nats://b,a:4223", "nats://a:4223,b:4222"].map(|url| read(url).unwrap());
        assert_eq!(one.shown(":"), other.shown(":"));
    }

    #[test]
    fn an_address_never_shows_credentials() {
        let config = read("nats://user:s3cr%40t@a.example:1,b.example/?prefix=shop").unwrap();
        assert!(
            matches!(&config.login, Login::User { user, password } if user == "user" && password == "s3cr@t")
        );
        assert_eq!(config.shown(":"), "nats:a.example:1,b.example:4222?prefix=shop");
        assert!(matches!(read("nats://t0ken@host").unwrap().login, Login::Token(token) if token == "t0ken"));
        let error = read("nats://user:s3cret@:x/").err().unwrap();
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }

    #[test]
    fn wrong_parts_are_named() {
        for (url, named) in [
            ("nats://", "nats://user:password@host"),
            ("nats://a,,b", "nats://user:password@host"),
            ("nats://localhost/first", "nats://user:password@host"),
            ("nats://localhost?prefix=a_b", "prefix"),
            ("nats://localhost?prefix=a.b", "prefix"),
            ("nats://localhost?prefix=", "prefix"),
            ("nats://localhost?replicas=0", "replicas"),
            ("nats://localhost?timeout=5s", "timeout"),
            ("nats://localhost?tls=maybe", "tls"),
            ("nats://localhost?tls=false&ca=ca.pem", "tls"),
            ("nats://a:b@localhost?credentials=file", "credentials"),
            ("nats://localhost?stream=bus", "stream"),
        ] {
            let error = read(url).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(error.to_string().contains(named), "{url}: {error}");
        }
    }
}
