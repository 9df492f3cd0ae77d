//! What is tested: how a suite opens the store, and how patient it may be.

use std::sync::Arc;
use std::time::Duration;

use super::case::HISTORIES;
use crate::clock::Clock;
use crate::contract::{BoxFuture, LockManager, OpenOptions, Scheme, StoreUrl, Transport};
use crate::error::{Error, ErrorKind, Result};

/// The times a suite works with.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Timing {
    /// A lease short enough to wait for its end, and much longer than a call to the store takes.
    pub lease: Duration,
    /// Long enough for a call to be done, short enough to be waited for again and again.
    pub moment: Duration,
    /// How long a condition may take to come true before the case fails.
    pub patience: Duration,
    /// How many random histories a case tries, unless `BUS_TEST_CASES` says otherwise: fewer where a moment is long.
    pub histories: u32,
    /// How many messages are many: fewer where each costs the store more, the more there are.
    pub many: usize,
}

/// Half a second, 25 ms, 20 s, 64 histories, 2 500 messages.
impl Default for Timing {
    fn default() -> Self {
        Timing {
            lease: Duration::from_millis(500),
            moment: Duration::from_millis(25),
            patience: Duration::from_secs(20),
            histories: HISTORIES,
            many: 2_500,
        }
    }
}

impl Timing {
    /// These times with another lease.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// These times with another moment.
    #[must_use]
    pub fn moment(mut self, moment: Duration) -> Self {
        self.moment = moment;
        self
    }

    /// These times with another patience.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// These times with another number of histories.
    #[must_use]
    pub fn histories(mut self, histories: u32) -> Self {
        self.histories = histories;
        self
    }

    /// These times with another number of many messages.
    #[must_use]
    pub fn many(mut self, many: usize) -> Self {
        self.many = many;
        self
    }
}

/// A message store under test.
pub trait TransportSubject: Send + Sync {
    /// Connects to the store as a host does; each call is another host on the same store.
    fn open_transport(&self) -> BoxFuture<'_, Result<Arc<dyn Transport>>>;

    /// The times to work with.
    fn timing(&self) -> Timing {
        Timing::default()
    }
}

/// A lock manager under test.
pub trait LockSubject: Send + Sync {
    /// Connects to the store as a host does; each call is another host on the same store.
    fn open_locks(&self) -> BoxFuture<'_, Result<Arc<dyn LockManager>>>;

    /// The times to work with.
    fn timing(&self) -> Timing {
        Timing::default()
    }
}

/// A store that is found by its URL, as a host finds it. Reads tokio's clock, so that time may be paused.
#[derive(Clone, Debug)]
pub struct UrlSubject {
    url: StoreUrl,
    scheme: &'static Scheme,
    options: OpenOptions,
    timing: Timing,
}

impl UrlSubject {
    /// The store at `url`. Call it within the runtime in which the cases run.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the URL cannot be read or no backend of this binary answers to it.
    pub fn new(url: &str) -> Result<Self> {
        let url = StoreUrl::parse(url)?;
        let scheme = Scheme::find(url.scheme())?;
        let options = OpenOptions::new(Clock::tokio());
        Ok(UrlSubject { url, scheme, options, timing: Timing::default() })
    }

    /// The same store with other times.
    #[must_use]
    pub fn with_timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// The same store, opened with this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.options = OpenOptions::new(clock);
        self
    }

    fn lacks(&self, what: &'static str) -> Error {
        Error::new(ErrorKind::Config, format!("{}:// is no {what}", self.url.scheme()))
    }
}

impl TransportSubject for UrlSubject {
    fn open_transport(&self) -> BoxFuture<'_, Result<Arc<dyn Transport>>> {
        match self.scheme.transport {
            Some(open) => open(&self.url, &self.options),
            None => Box::pin(std::future::ready(Err(self.lacks("transport")))),
        }
    }

    fn timing(&self) -> Timing {
        self.timing
    }
}

impl LockSubject for UrlSubject {
    fn open_locks(&self) -> BoxFuture<'_, Result<Arc<dyn LockManager>>> {
        match self.scheme.locks {
            Some(open) => open(&self.url, &self.options),
            None => Box::pin(std::future::ready(Err(self.lacks("lock manager")))),
        }
    }

    fn timing(&self) -> Timing {
        self.timing
    }
}
