//! Headers: text beside a message's body.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Text beside the body, by name. Names are compared as they are written; those that begin with `bus-` and
/// `traceparent`, `tracestate` and `baggage` (W3C Trace Context) are set by the bus itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Headers(BTreeMap<String, String>);

impl Headers {
    /// The fence of the singleton's term in which a message was sent.
    pub const FENCE: &str = "bus-fence";
    /// The W3C trace context of the sender.
    pub const TRACEPARENT: &str = "traceparent";
    /// The W3C trace state of the sender.
    pub const TRACESTATE: &str = "tracestate";

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
