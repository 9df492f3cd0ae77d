//! What travels: a message's bytes and what is known about them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Headers;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};

/// The identity of a message: the same for every delivery of it and for each subscription's copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(Uuid);

impl MessageId {
    /// A fresh id: a UUID of version 7, which sorts by the time at which it was made.
    pub fn fresh() -> Self {
        MessageId(Uuid::now_v7())
    }

    /// The id of a message that follows from this one: the same for the same `name` each time, so that what a handler
    /// sends again at its next attempt is recognised by whoever receives it.
    ///
    /// The subscriptions of an event see the same id: give each of their handlers names of its own, and each message that
    /// one handler sends.
    ///
    /// A UUID of version 5 (RFC 9562), with this id as its namespace.
    ///
    /// ```
    /// use bus::MessageId;
    ///
    /// let order = MessageId::fresh();
    /// assert_eq!(order.derive("ship"), order.derive("ship"));
    /// assert_ne!(order.derive("ship"), order.derive("bill"));
    /// assert_ne!(order.derive("ship"), MessageId::fresh().derive("ship"));
    /// ```
    #[must_use]
    pub fn derive(&self, name: &str) -> Self {
        MessageId(Uuid::new_v5(&self.0, name.as_bytes()))
    }

    /// The UUID itself.
    pub const fn as_uuid(&self) -> &Uuid {
        &self.0
    }
}

impl From<Uuid> for MessageId {
    fn from(id: Uuid) -> Self {
        MessageId(id)
    }
}

impl FromStr for MessageId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        Uuid::parse_str(text).map(MessageId).map_err(|e| {
            Error::new(ErrorKind::InvalidInput, format!("{text:?} is no message id: write a UUID"))
                .caused_by(e)
        })
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message on its way: its bytes and what is known about them. Cheap to clone, but for its headers.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Envelope {
    /// Identifies the message.
    pub id: MessageId,
    /// The message's type, [`Message::TYPE`](crate::Message::TYPE) of the sender.
    pub message_type: Cow<'static, str>,
    /// Text beside the body; the trace context is in here.
    pub headers: Headers,
    /// When it was sent, by the sender's clock.
    pub sent_at: Timestamp,
    /// How long after `sent_at` it is still worth processing; after that it is dead-lettered as `expired`.
    pub time_to_live: Option<Duration>,
    /// The encoded message.
    pub body: Bytes,
}

impl Envelope {
    /// An envelope with a fresh id around `body`.
    pub fn new(
        message_type: impl Into<Cow<'static, str>>,
        body: impl Into<Bytes>,
        sent_at: Timestamp,
    ) -> Self {
        Envelope {
            id: MessageId::fresh(),
            message_type: message_type.into(),
            headers: Headers::new(),
            sent_at,
            time_to_live: None,
            body: body.into(),
        }
    }

    /// How many bytes it has, headers included: what it takes in memory, and on the way.
    pub fn bytes(&self) -> usize {
        self.message_type.len() + self.headers.bytes() + self.body.len()
    }

    /// Whether its time to live has passed.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.time_to_live.is_some_and(|live| now >= self.sent_at + live)
    }
}

/// Shows everything but the body, which may hold what must not be logged.
impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("id", &self.id)
            .field("message_type", &self.message_type)
            .field("headers", &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("sent_at", &self.sent_at)
            .field("time_to_live", &self.time_to_live)
            .field("body", &format_args!("{} bytes", self.body.len()))
            .finish()
    }
}
