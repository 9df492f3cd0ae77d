//! Who reads an endpoint, how long what waits there has waited, how long a subscription keeps it, and a subscription's end.

use std::time::Duration;

use super::BoxFuture;
use crate::error::Result;
use crate::message::Endpoint;

/// How often a host says of each endpoint that it has a processor of it.
pub const ATTENDED_EVERY: Duration = Duration::from_secs(60);

/// After so long without a word, nobody reads an endpoint: a host would have said so three times.
pub const UNATTENDED_AFTER: Duration = Duration::from_secs(180);

/// So soon after a store was emptied under running hosts (flushed, or its data lost) they have made again what they read.
/// Until then a store that can tell refuses events from those who knew it before, with
/// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable): they would reach none of the subscriptions that are still to come.
pub const READ_AGAIN_WITHIN: Duration = Duration::from_secs(10);

/// Keeps in a store, beside each endpoint, when a host last said that it has a processor of it. The store's clock is the
/// one that counts; a message's age is reckoned from its `sent_at`, as its time to live is.
///
/// That a host *has* a processor is what is noted, not that a message was claimed: a quiet endpoint has readers too, and so
/// has a singleton's whose holder has just died, as long as others stand by.
pub trait Readers: Send + Sync + 'static {
    /// A host has processors of these endpoints, now. It says so when it starts, and every [`ATTENDED_EVERY`]. An endpoint
    /// that is not there is passed over. Where hosts disagree about the retention, the last to speak is heard.
    fn attend<'a>(&'a self, attended: &'a [Attended]) -> BoxFuture<'a, Result<()>>;

    /// Every endpoint of the store, sorted.
    fn readings(&self) -> BoxFuture<'_, Result<Vec<Reading>>>;

    /// How long ago the first message of an endpoint that is available was sent; `None` if none is, or there is no such
    /// endpoint. Unless it is written for a store, every endpoint is [asked](Readers::readings) about for that.
    fn oldest<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<Duration>>> {
        Box::pin(async move {
            let readings = self.readings().await?;
            Ok(readings
                .into_iter()
                .find(|reading| reading.endpoint == *endpoint)
                .and_then(|found| found.oldest))
        })
    }

    /// Drops for good what subscriptions with a retention have kept for longer: messages that are available and have never
    /// been claimed nor put back. What has been tried is left to its retries, what was put back or given back to who reads
    /// it next, what is delayed to its time. It does a part at a time, from
    /// the oldest on, and answers how many messages each subscription has lost; it is called again until it answers none.
    fn sweep(&self) -> BoxFuture<'_, Result<Vec<(Endpoint, u64)>>>;

    /// Drops a subscription with everything in it, its dead letters included, unless a host has attended to it within the
    /// last `unattended`. What is published later does not reach it; whoever [prepares](super::Transport::prepare) it again
    /// makes a new one. Repeating it does nothing more. A queue is never dropped.
    ///
    /// A host that attends in the same moment either is heard, and everything stays, or finds it gone. A store that cannot
    /// keep the two apart says so on its page.
    fn drop_subscription<'a>(
        &'a self,
        subscription: &'a Endpoint,
        unattended: Duration,
    ) -> BoxFuture<'a, Result<DroppedSubscription>>;
}

/// An endpoint that a host has a processor of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attended {
    /// Which.
    pub endpoint: Endpoint,
    /// How long it keeps what waits there, if it is a subscription; `None` for as long as it takes.
    pub retention: Option<Duration>,
}

impl Attended {
    /// One that keeps what waits there for as long as it takes.
    pub fn new(endpoint: Endpoint) -> Self {
        Attended { endpoint, retention: None }
    }

    /// The same, with a retention.
    #[must_use]
    pub fn retention(mut self, retention: Option<Duration>) -> Self {
        self.retention = retention;
        self
    }
}

/// What is known about the reading of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// Which.
    pub endpoint: Endpoint,
    /// How long ago the first message that is available was sent; `None` if none is.
    pub oldest: Option<Duration>,
    /// How long ago a host last [attended](Readers::attend) to it; `None` if that is not known: it never was, or by hosts
    /// of an older version.
    pub attended: Option<Duration>,
    /// How long it keeps what waits there.
    pub retention: Option<Duration>,
}

impl Reading {
    /// A reading.
    pub fn new(
        endpoint: Endpoint,
        oldest: Option<Duration>,
        attended: Option<Duration>,
        retention: Option<Duration>,
    ) -> Self {
        Reading { endpoint, oldest, attended, retention }
    }

    /// For how long nobody has read it, as far as that is known: where it was never attended to, its oldest message is the
    /// witness. `None` if it is read, or nothing waits there.
    pub fn unread(&self) -> Option<Duration> {
        match (self.oldest, self.attended) {
            (None, _) => None,
            (Some(oldest), None) => Some(oldest),
            (Some(_), Some(attended)) => (attended >= UNATTENDED_AFTER).then_some(attended),
        }
    }
}

/// What became of a subscription that was to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DroppedSubscription {
    /// It is gone, with everything in it.
    Done,
    /// There is no such subscription (any more).
    NotFound,
    /// It stays: a host has attended to it so long ago.
    Attended(Duration),
}
