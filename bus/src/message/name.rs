//! Names of queues, topics and subscriptions, and the addresses made of them.
//!
//! The rule is the narrowest that every supported store takes, so that a program can change its store without
//! renaming anything: 1 to 63 lower-case letters, digits and single inner dashes.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// Why `name` cannot name a queue, topic or subscription; `None` if it can.
///
/// The same function judges at compile time (in the macros' output) and at run time.
pub const fn why_invalid(name: &str) -> Option<&'static str> {
    let bytes = name.as_bytes();
    if bytes.is_empty() {
        return Some("it is empty");
    }
    if bytes.len() > 63 {
        return Some("it is longer than 63 characters");
    }
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b'a'..=b'z' | b'0'..=b'9' => {}
            b'-' if i == 0 || i + 1 == bytes.len() => return Some("it begins or ends with a dash"),
            b'-' if bytes[i - 1] == b'-' => return Some("it has two dashes in a row"),
            b'-' => {}
            _ => return Some("it has a character other than a-z, 0-9 and dash"),
        }
        i += 1;
    }
    None
}

/// A name that was judged while compiling. Made only in constants, by what the macros write.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ConstName(&'static str);

impl ConstName {
    /// Takes a name.
    ///
    /// # Panics
    /// If it is not valid: in a constant that is a compile error.
    pub const fn new(name: &'static str) -> Self {
        match why_invalid(name) {
            None => ConstName(name),
            Some(why) => panic!("{}", why),
        }
    }
}

/// A valid name of a queue, topic or subscription. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it is not 1 to 63 lower-case letters, digits and single inner dashes.
    pub fn new(name: &str) -> Result<Self> {
        match why_invalid(name) {
            None => Ok(Name(name.into())),
            Some(why) => Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "{name:?} cannot be a name: {why}; write 1 to 63 of a-z, 0-9 and single inner dashes"
                ),
            )),
        }
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<ConstName> for Name {
    fn from(name: ConstName) -> Self {
        Name(name.0.into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Where a message is sent to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A queue, read by one processor of the fleet.
    Queue(Name),
    /// A topic, copied into each of its subscriptions.
    Topic(Name),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Queue(name) | Target::Topic(name) => name.fmt(f),
        }
    }
}

/// Where messages are received from. Written `queue` or `topic/subscription`, in the configuration as in the logs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// A queue of commands.
    Queue(Name),
    /// One subscription of a topic of events.
    Subscription {
        /// The topic that is read.
        topic: Name,
        /// The subscription's own name.
        subscription: Name,
    },
}

impl Endpoint {
    /// A queue's endpoint.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] as of [`Name::new`].
    pub fn queue(name: &str) -> Result<Self> {
        Ok(Endpoint::Queue(Name::new(name)?))
    }

    /// A subscription's endpoint.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] as of [`Name::new`].
    pub fn subscription(topic: &str, subscription: &str) -> Result<Self> {
        Ok(Endpoint::Subscription { topic: Name::new(topic)?, subscription: Name::new(subscription)? })
    }

    /// Reads `queue` or `topic/subscription`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] as of [`Name::new`].
    pub fn parse(text: &str) -> Result<Self> {
        match text.split_once('/') {
            None => Endpoint::queue(text),
            Some((topic, subscription)) => Endpoint::subscription(topic, subscription),
        }
    }

    /// What is sent to in order to reach this endpoint.
    pub fn target(&self) -> Target {
        match self {
            Endpoint::Queue(name) => Target::Queue(name.clone()),
            Endpoint::Subscription { topic, .. } => Target::Topic(topic.clone()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Queue(name) => name.fmt(f),
            Endpoint::Subscription { topic, subscription } => write!(f, "{topic}/{subscription}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_every_store_takes() {
        for good in ["a", "rebuild-cache", "0", "a-1-b", &"x".repeat(63)] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "a--b", "A", "a.b", "a/b", "å", "a b", &"x".repeat(64)] {
            assert_eq!(Name::new(bad).map_err(|e| e.kind()), Err(ErrorKind::InvalidInput), "{bad}");
        }
    }

    #[test]
    fn endpoints_read_what_they_print() {
        for text in ["rebuild-cache", "order-placed/send-receipt"] {
            assert_eq!(Endpoint::parse(text).map(|e| e.to_string()).ok().as_deref(), Some(text));
        }
        assert!(Endpoint::parse("a/b/c").is_err());
    }
}
