//! Headers: text beside a message's body.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Text beside the body, by name: any text, also with line breaks and NUL in it. Names are compared as they are written;
/// those that begin with `bus-`, `content-type`, and `traceparent`, `tracestate` and `baggage` (W3C Trace Context) are set
/// by the bus itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Headers(BTreeMap<String, String>);

impl Headers {
    /// How many bytes all names and values of a message may have together: 32 KiB, the bus's own headers included. The
    /// same for every store, so that a program can change its store: some keep headers where there is room for little
    /// more.
    pub const MAX_BYTES: usize = 32 * 1024;
    /// The media type of the body ([`Message::CONTENT_TYPE`](crate::Message::CONTENT_TYPE)) where that is not JSON. A
    /// processor refuses a message that is said to be encoded in another way than its own.
    pub const CONTENT_TYPE: &str = "content-type";
    /// The fence of the singleton's term in which a message was sent.
    pub const FENCE: &str = "bus-fence";
    /// The W3C trace context of the sender.
    pub const TRACEPARENT: &str = "traceparent";
    /// The W3C trace state of the sender.
    pub const TRACESTATE: &str = "tracestate";
    /// The W3C baggage of the sender: what is passed on to all that follows.
    pub const BAGGAGE: &str = "baggage";
    /// Set where a dead letter was put back.
    pub const PUT_BACK: &str = "bus-put-back";

    /// No headers.
    pub const fn new() -> Self {
        Headers(BTreeMap::new())
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Sets `name` to `value`; returns what it was before.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) -> Option<String> {
        self.0.insert(name.into(), value.into())
    }

    /// Removes `name`; returns what it was.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// All headers, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How many bytes all names and values have together.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Headers(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}
