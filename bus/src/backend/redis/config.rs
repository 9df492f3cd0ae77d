//! What a `redis://` or `rediss://` URL says.

use std::path::PathBuf;
use std::time::Duration;

use redis::{ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use super::error::error;
use crate::contract::StoreUrl;
use crate::error::{Error, ErrorKind, Result};

/// A store to be opened.
#[derive(Clone)]
pub(super) struct Config {
    /// Where to connect, and as whom. Holds the password: never shown.
    pub(super) connection: ConnectionInfo,
    /// `host:port/db`, for people.
    pub(super) server: String,
    /// What all keys begin with.
    pub(super) prefix: String,
    /// The largest body that is taken, in bytes.
    pub(super) max_body: usize,
    /// How long a call may take.
    pub(super) timeout: Duration,
    /// `rediss://`.
    pub(super) is_encrypted: bool,
    /// Whom to trust instead of the system's authorities: a file with certificates as PEM.
    #[cfg(feature = "redis-tls")]
    pub(super) authority: Option<PathBuf>,
}

impl Config {
    const MAX_BODY: usize = 16 << 20;
    /// What the server takes in one piece, with room for the rest of the message (`proto-max-bulk-len` is 512 MiB).
    const LARGEST_MAX_BODY: usize = 256 << 20;
    const PREFIX: &str = "bus";
    const TIMEOUT_MILLIS: u64 = 5_000;

    /// Reads `redis://[[user]:password@]host[:port][/database][?prefix=…&max_body=bytes&timeout=milliseconds&ca=file]`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], saying which part is wrong and what would be right.
    pub(super) fn from_url(url: &StoreUrl) -> Result<Self> {
        url.allow_params(&["prefix", "max_body", "timeout", "ca"])?;
        let is_encrypted = url.scheme() == "rediss";
        if is_encrypted && !cfg!(feature = "redis-tls") {
            return Err(bad("rediss:// needs the feature `redis-tls` of bus"));
        }
        let authority = url.params().get("ca").map(PathBuf::from);
        if authority.is_some() && !is_encrypted {
            return Err(bad("ca is for encrypted connections: write rediss://"));
        }
        // The cause is not shown: it may repeat what was written, the password included.
        let connection = format!("{}://{}", scheme(is_encrypted), url.rest())
            .into_connection_info()
            .map_err(|_| bad("the address cannot be read: write redis://user:password@host:6379/0"))?;
        let settings = connection.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let server = format!("{}/{}", connection.addr(), settings.db());
        Ok(Config {
            connection: connection.set_redis_settings(settings),
            server,
            prefix: prefix(url)?,
            max_body: url.number("max_body", Self::MAX_BODY, 1..=Self::LARGEST_MAX_BODY)?,
            timeout: Duration::from_millis(url.number("timeout", Self::TIMEOUT_MILLIS, 100..=60_000)?),
            is_encrypted,
            #[cfg(feature = "redis-tls")]
            authority,
        })
    }

    /// The store's address without credentials, beginning with the scheme and what is to follow it.
    pub(super) fn address(&self, after_scheme: &str) -> String {
        let address = format!("{}{after_scheme}{}", scheme(self.is_encrypted), self.server);
        if self.prefix == Self::PREFIX { address } else { format!("{address}?prefix={}", self.prefix) }
    }
}

fn scheme(is_encrypted: bool) -> &'static str {
    if is_encrypted { "rediss" } else { "redis" }
}

fn prefix(url: &StoreUrl) -> Result<String> {
    let prefix = url.params().get("prefix").map_or(Config::PREFIX, String::as_str);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if prefix.is_empty() || !prefix.chars().all(is_plain) {
        return Err(bad("prefix is of letters, digits, '-', '_', '.' and ':'").with("prefix", prefix));
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
        let config = read("redis://localhost").unwrap();
        assert_eq!(config.address("://"), "redis://localhost:6379/0");
        assert_eq!((config.prefix.as_str(), config.max_body), ("bus", 16 << 20));
        assert_eq!(config.timeout, Duration::from_secs(5));
    }

    #[test]
    fn an_address_never_shows_credentials() {
        let config = read("redis://user:s3cr%40t@db.example:7000/3?prefix=shop").unwrap();
        assert_eq!(config.connection.redis_settings().username(), Some("user"));
        assert_eq!(config.connection.redis_settings().password(), Some("s3cr@t"));
        assert_eq!(config.address(":"), "redis:db.example:7000/3?prefix=shop");
        let error = read("redis://user:s3cret@:x/").err().unwrap();
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }

    #[test]
    fn wrong_parts_are_named() {
        for (url, named) in [
            ("redis://", "redis://user:password@host"),
            ("redis://localhost/first", "redis://user:password@host"),
            ("redis://localhost?prefix={bus}", "prefix"),
            ("redis://localhost?prefix=", "prefix"),
            ("redis://localhost?max_body=0", "max_body"),
            ("redis://localhost?timeout=5s", "timeout"),
            ("redis://localhost?protocol=resp3", "protocol"),
            ("redis://localhost?ca=ca.pem", "rediss"),
        ] {
            let error = read(url).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(error.to_string().contains(named), "{url}: {error}");
        }
    }
}
