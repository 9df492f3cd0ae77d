//! Views for people: how much waits where, and what has been given up on.

use super::BoxFuture;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::message::{Endpoint, Envelope, MessageId};

/// How many messages of an endpoint are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Depth {
    /// Available now.
    pub ready: u64,
    /// Claimed by some process.
    pub in_flight: u64,
    /// Waiting for their time, retries included.
    pub delayed: u64,
    /// Given up on.
    pub dead: u64,
}

impl Depth {
    /// A depth.
    pub const fn new(ready: u64, in_flight: u64, delayed: u64, dead: u64) -> Self {
        Depth { ready, in_flight, delayed, dead }
    }
}

/// A message that was given up on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The message as it came.
    pub envelope: Envelope,
    /// Where it was received.
    pub endpoint: Endpoint,
    /// Why it was given up on.
    pub reason: String,
    /// What failed last, where something did.
    pub error: Option<String>,
    /// When.
    pub dead_since: Timestamp,
    /// How often it had been claimed.
    pub delivery_count: u32,
}

impl DeadLetter {
    /// A dead letter.
    pub fn new(
        envelope: Envelope,
        endpoint: Endpoint,
        reason: String,
        error: Option<String>,
        dead_since: Timestamp,
        delivery_count: u32,
    ) -> Self {
        DeadLetter { envelope, endpoint, reason, error, dead_since, delivery_count }
    }
}

/// What became of one dead letter that was to be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutBack {
    /// It is in its queue again, with its counts at zero.
    Done,
    /// It is no dead letter (any more).
    NotFound,
}

/// What became of one dead letter that was to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It is gone for good.
    Done,
    /// It is no dead letter (any more).
    NotFound,
}

/// Looks into a store without changing it, but for [`put_back`](Inspect::put_back) and
/// [`drop_dead_letters`](Inspect::drop_dead_letters).
pub trait Inspect: Send + Sync + 'static {
    /// All endpoints that the store knows, sorted.
    fn endpoints(&self) -> BoxFuture<'_, Result<Vec<Endpoint>>>;

    /// How much is where.
    fn depth<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Depth>>;

    /// Up to `limit` dead letters of an endpoint, oldest first, those after `after`.
    fn dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        after: Option<MessageId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>>>;

    /// Puts dead letters back into the queue they came from, each answered for. Repeating it does nothing more. A message
    /// that was put back says so, by the header [`Headers::PUT_BACK`](crate::Headers::PUT_BACK) with the value `1`.
    fn put_back<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, PutBack)>>>;

    /// Drops dead letters for good, each answered for. Repeating it does nothing more; a message of that id which is not
    /// dead stays as it is.
    fn drop_dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, Dropped)>>>;
}
