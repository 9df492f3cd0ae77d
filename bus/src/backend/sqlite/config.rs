//! What a `sqlite://` URL says.

use std::path::PathBuf;
use std::time::Duration;

use super::error::error;
use crate::contract::StoreUrl;
use crate::error::{Error, ErrorKind, Result};

/// A store to be opened.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// The file, as it was written: relative to the working directory, unless absolute.
    pub(super) path: PathBuf,
    /// Whether a missing file is made.
    pub(super) create: bool,
    pub(super) synchronous: Synchronous,
    /// The largest body that is taken, in bytes.
    pub(super) max_body: usize,
    /// How long to wait for someone who writes to the file without asking at the gate, such as the user's own tools.
    pub(super) busy_timeout: Duration,
}

/// When a commit counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Synchronous {
    /// On the disk before it is answered.
    Full,
    /// In the operating system's hands: survives the process, but not always a power loss.
    Normal,
}

impl Synchronous {
    /// As a pragma's value.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Synchronous::Full => "FULL",
            Synchronous::Normal => "NORMAL",
        }
    }
}

impl Config {
    const MAX_BODY: usize = 16 << 20;
    /// What SQLite itself can hold in one value, with room for the rest of the row.
    const LARGEST_MAX_BODY: usize = 512 << 20;

    /// Reads `sqlite://path[?synchronous=FULL|NORMAL&max_body=bytes]`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], saying which part is wrong and what would be right.
    pub(super) fn from_url(url: &StoreUrl, create: bool) -> Result<Self> {
        url.allow_params(&["synchronous", "max_body"])?;
        if url.rest().is_empty() {
            return Err(bad("sqlite:// needs a file: write sqlite://bus.db or sqlite:///srv/app/bus.db"));
        }
        if url.rest().starts_with(":memory:") {
            return Err(bad("SQLite in memory cannot be shared by processes: write memory:// instead"));
        }
        let synchronous = match url.params().get("synchronous").map(String::as_str) {
            None => Synchronous::Full,
            Some(value) if value.eq_ignore_ascii_case("FULL") => Synchronous::Full,
            Some(value) if value.eq_ignore_ascii_case("NORMAL") => Synchronous::Normal,
            Some(value) => return Err(bad("synchronous is FULL or NORMAL").with("synchronous", value)),
        };
        let max_body = url.number("max_body", Self::MAX_BODY, 1..=Self::LARGEST_MAX_BODY)?;
        Ok(Config {
            path: PathBuf::from(url.rest()),
            create,
            synchronous,
            max_body,
            busy_timeout: Duration::from_secs(10),
        })
    }
}

fn bad(message: &'static str) -> Error {
    error(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config> {
        Config::from_url(&StoreUrl::parse(url)?, true)
    }

    #[test]
    fn a_path_alone_is_durable_and_relative() {
        let config = read("sqlite://bus.db").unwrap();
        assert_eq!(config.path, PathBuf::from("bus.db"));
        assert_eq!((config.synchronous, config.max_body), (Synchronous::Full, 16 << 20));
        assert_eq!(read("sqlite:///srv/bus.db").unwrap().path, PathBuf::from("/srv/bus.db"));
    }

    #[test]
    fn parameters_are_read_and_wrong_ones_named() {
        let config = read("sqlite://bus.db?synchronous=normal&max_body=1024").unwrap();
        assert_eq!((config.synchronous, config.max_body), (Synchronous::Normal, 1024));
        for (url, named) in [
            ("sqlite://", "sqlite://bus.db"),
            ("sqlite://:memory:", "memory://"),
            ("sqlite://bus.db?synchronous=OFF", "OFF"),
            ("sqlite://bus.db?max_body=0", "max_body"),
            ("sqlite://bus.db?max_body=many", "many"),
            ("sqlite://bus.db?mode=ro", "mode"),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(error.to_string().contains(named), "{url}: {error}");
        }
    }
}
