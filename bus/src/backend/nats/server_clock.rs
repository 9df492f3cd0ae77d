//! The server's clock. It is told with whatever is stored, and with nothing else.

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

/// The last reading.
#[derive(Debug, Default)]
pub(super) struct ServerClock(Mutex<Option<Reading>>);

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
        let known = *self.server_clock.0.lock();
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
        let subject = self.names.clock();
        let written = self.write(&Home::State, Ask::new(&subject, ""), until, Lost::Again).await?;
        let Written::As(_) = written else { return Err(missing()) };
        // Another host's reading may have taken the place of ours: later, and no later than now.
        let stored = self.last_of(&self.names.state(), &subject, until).await?.ok_or_else(missing)?;
        let reading = Reading { server: stored.time, here: self.clock.now() };
        *self.server_clock.0.lock() = Some(reading);
        Ok(reading)
    }
}
