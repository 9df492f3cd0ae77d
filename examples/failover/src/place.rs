//! Where one experiment takes place: a directory without histories, and stores that nobody has used.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::args::{Options, Part};
use crate::history::EXTENSION;
use crate::servers::Servers;
use crate::stores::{Asked, Kind};

/// The place, made ready.
#[derive(Debug, Clone)]
pub struct Place {
    /// Of the histories, the logs and, unless told otherwise, the stores.
    pub directory: PathBuf,
    /// The store of the messages.
    pub store: String,
    /// The store of the lock.
    pub locks: String,
}

impl Place {
    /// Makes the place that the options ask for.
    ///
    /// # Errors
    /// When the directory holds the histories of an earlier run, or cannot be made.
    pub fn fresh(options: &Options, servers: &Servers) -> Result<Self> {
        let run = format!("{}_{}", since_epoch().as_secs(), std::process::id());
        let directory =
            options.history.clone().unwrap_or_else(|| std::env::temp_dir().join(format!("failover-{run}")));
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let directory = directory.canonicalize()?;
        if holds_histories(&directory)? {
            bail!("{} holds the histories of an earlier run; name another one", directory.display());
        }
        let default = Asked::At(Kind::Sqlite, format!("sqlite://{}", directory.join("bus.db").display()));
        let asked = options.store.as_ref().unwrap_or(&default);
        let fresh = |asked: &Asked| -> Result<String> {
            let url = servers.url(asked)?;
            Ok(if asked.kind() == Kind::Sqlite { unused(&url, &run) } else { asked.part_of(&url, &run) })
        };
        let store = fresh(asked)?;
        let locks = match &options.lock_store() {
            Some(locks) if locks != asked => fresh(locks)?,
            _ => store.clone(),
        };
        Ok(Self { directory, store, locks })
    }

    /// What the processes of this place are told.
    pub fn part(&self, messages: u64, lease: Duration) -> Part {
        Part {
            messages,
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
            store: self.store.clone(),
            locks: self.locks.clone(),
            history: self.directory.clone(),
        }
    }
}

/// The register's file below the directory of the histories.
pub fn register_file(directory: &Path) -> PathBuf {
    directory.join("register.db")
}

/// Milliseconds since 1970.
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The path in the URL of a file or directory.
pub fn path_of(url: &str) -> PathBuf {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    PathBuf::from(rest.split('?').next().unwrap_or(rest))
}

fn holds_histories(directory: &Path) -> Result<bool> {
    for entry in fs::read_dir(directory)? {
        if entry?.path().extension().is_some_and(|extension| extension == EXTENSION) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The URL of a SQLite file itself when nothing is there yet, else one beside it.
fn unused(url: &str, run: &str) -> String {
    let file = path_of(url);
    if !file.exists() {
        return url.to_owned();
    }
    let parameters = url.split_once('?').map(|(_, rest)| format!("?{rest}")).unwrap_or_default();
    format!("sqlite://{}.{run}{parameters}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_exists_is_not_used_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("bus.db");
        let url = format!("sqlite://{}?synchronous=NORMAL", file.display());
        assert_eq!(unused(&url, "7"), url);
        fs::write(&file, "").unwrap();
        assert_eq!(unused(&url, "7"), format!("sqlite://{}.7?synchronous=NORMAL", file.display()));
        assert_eq!(path_of(&url), file);
    }

    #[test]
    fn a_directory_with_histories_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!holds_histories(directory.path()).unwrap());
        fs::write(directory.path().join("host-1.jsonl"), "").unwrap();
        assert!(holds_histories(directory.path()).unwrap());
    }
}
