//! The server's clock. It is told with whatever is stored, and with nothing else.
//!
//! In a cluster each stream has a leader, which stamps what is stored by a clock of its own. So whoever compares a stamp with
//! the time asks the stream that the stamp is of: the locks theirs, everything else that of the records.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::client::{Ask, Client};
use super::error::Lost;
use super::jetstream::{Written, missing};
use super::streams::Home;
use crate::clock::{BootInstant, Timestamp};
use crate::error::Result;

/// How long a reading is gone by: the two clocks drift apart, and the server's may be set.
const FRESH: Duration = Duration::from_secs(30);

/// The clock of a stream, as it was read last.
#[derive(Debug)]
pub(super) struct ServerClock {
    of: Home,
    last: Mutex<Option<Reading>>,
}

impl ServerClock {
    pub(super) fn new(of: Home) -> Self {
        ServerClock { of, last: Mutex::default() }
    }
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    server: Timestamp,
    /// When the answer came: the server's clock was no earlier then.
    here: BootInstant,
}

impl Client {
    /// The time by the server's clock: never later than it is, and earlier by no more than an answer takes.
    pub(super) async fn server_now(&self, until: Instant) -> Result<Timestamp> {
        let now = self.clock.now();
        let known = *self.server_clock.last.lock();
        let reading = match known.filter(|reading| now.since(reading.here) < FRESH) {
            Some(reading) => reading,
            None => self.read_clock(until).await?,
        };
        Ok(reading.server + self.clock.now().since(reading.here))
    }

    /// The same, asked for now: by a clock that was set since the last reading, nobody is taken for dead.
    pub(super) async fn server_now_afresh(&self, until: Instant) -> Result<Timestamp> {
        self.read_clock(until).await.map(|reading| reading.server)
    }

    async fn read_clock(&self, until: Instant) -> Result<Reading> {
        let home = &self.server_clock.of;
        let subject = if *home == Home::Locks { self.names.lock_clock() } else { self.names.clock() };
        let written = self.write(home, Ask::new(&subject, ""), until, Lost::Again).await?;
        let Written::As(_) = written else { return Err(missing()) };
        // Another host's reading may have taken the place of ours: later, and no later than now.
        let stored = self.last_of(&home.name(self), &subject, until).await?.ok_or_else(missing)?;
        let reading = Reading { server: stored.time, here: self.clock.now() };
        *self.server_clock.last.lock() = Some(reading);
        Ok(reading)
    }
}
