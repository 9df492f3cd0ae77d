//! The log's length: SQLite begins it anew whenever all of it is in the file and nobody reads from it. A reader that
//! stays (a transaction left open, a backup, a shell) lets it grow without end, and everything slower with it.

use std::path::Path;
use std::time::{Duration, Instant};

use super::config::Config;
use super::file::{LOG_LIMIT, StoreFile, checkpoint};

/// How often it is tried to shorten it.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// Keeps an eye on the log.
#[derive(Debug, Default)]
pub(super) struct LogWatch {
    /// How often the limit had been doubled by the length that was last told of; `None` while the log is short.
    told: Option<u32>,
    tried: Option<Instant>,
}

impl LogWatch {
    /// Takes note of the log's length. Says so when it has grown too long, and once more each time that it has doubled.
    pub(super) fn note(&mut self, length: u64, store: &Path) {
        let doublings = (length.saturating_sub(1) / LOG_LIMIT).checked_ilog2();
        if doublings > self.told {
            tracing::warn!(
                target: "bus::sqlite", event = "log.grown", file = %store.display(), bytes = length,
                "the log (-wal) grows, since somebody has been reading the store for long: end what has a transaction open in it, a backup or a shell, say. Until then everything that is sent and settled makes the log longer and the store slower"
            );
            self.told = doublings;
        } else if doublings.is_none() && self.told.take().is_some() {
            tracing::info!(target: "bus::sqlite", event = "log.shrunk", file = %store.display(), bytes = length, "the log is short again");
        }
    }

    /// Tries to shorten a log that is too long. A reader that is still there makes this cost next to nothing.
    pub(super) fn shorten(&mut self, file: &StoreFile, config: &Config) -> rusqlite::Result<()> {
        if self.told.is_none() || self.tried.is_some_and(|tried| tried.elapsed() < BETWEEN_TRIES) {
            return Ok(());
        }
        self.tried = Some(Instant::now());
        // Copying may take long, and keeps nobody from writing meanwhile; only cutting it off does.
        if !checkpoint(&file.connection, "PASSIVE")? {
            return Ok(());
        }
        let _passage = file.gate.pass();
        file.connection.busy_timeout(Duration::ZERO)?;
        let emptied = checkpoint(&file.connection, "TRUNCATE");
        file.connection.busy_timeout(config.busy_timeout)?;
        emptied.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_told_of_at_each_doubling_and_again_when_it_has_been_short() {
        let mut watch = LogWatch::default();
        let mut told = |length: u64| {
            watch.note(length, Path::new("bus.db"));
            watch.told
        };
        assert_eq!(told(0), None);
        assert_eq!(told(LOG_LIMIT), None);
        assert_eq!(told(LOG_LIMIT + 1), Some(0));
        assert_eq!(told(2 * LOG_LIMIT), Some(0));
        assert_eq!(told(9 * LOG_LIMIT), Some(3));
        assert_eq!(told(3 * LOG_LIMIT), Some(3));
        assert_eq!(told(LOG_LIMIT), None);
        assert_eq!(told(2 * LOG_LIMIT), Some(0));
    }
}
