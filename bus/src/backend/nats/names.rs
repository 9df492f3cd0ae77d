//! Names of streams, subjects and keys. The names of endpoints hold neither `_` nor `.`, so that each of ours can be read
//! back.

use std::fmt::Write as _;

use crate::contract::LockId;
use crate::message::{Endpoint, Name};

/// Makes names under a prefix, which holds neither `_` nor `.` either.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        Names { prefix: prefix.to_owned() }
    }

    /// The stream of an endpoint: `bus_q_jobs`, `bus_s_placed_mail`.
    pub(super) fn stream(&self, endpoint: &Endpoint) -> String {
        match endpoint {
            Endpoint::Queue(name) => format!("{}_q_{name}", self.prefix),
            Endpoint::Subscription { topic, subscription } => {
                format!("{}_s_{topic}_{subscription}", self.prefix)
            }
        }
    }

    /// The endpoint of a stream, if it is one.
    pub(super) fn endpoint(&self, stream: &str) -> Option<Endpoint> {
        let rest = stream.strip_prefix(&self.prefix)?.strip_prefix('_')?;
        let (kind, rest) = rest.split_once('_')?;
        match (kind, rest.split_once('_')) {
            ("q", None) => Endpoint::queue(rest).ok(),
            ("s", Some((topic, subscription))) => Endpoint::subscription(topic, subscription).ok(),
            _ => None,
        }
    }

    /// The subject on which an endpoint's messages are stored.
    pub(super) fn subject(&self, endpoint: &Endpoint) -> String {
        format!("{}.{}", self.prefix, token(endpoint))
    }

    /// The subjects of all queues, and of all subscriptions.
    pub(super) fn all_subjects(&self) -> [String; 2] {
        [format!("{}.q.*", self.prefix), format!("{}.s.*.*", self.prefix)]
    }

    /// The subjects of all subscriptions of a topic.
    pub(super) fn topic_subjects(&self, topic: &Name) -> String {
        format!("{}.s.{topic}.*", self.prefix)
    }

    /// The stream of records: fences, and what is known of messages that were tried before.
    pub(super) fn state(&self) -> String {
        format!("{}_state", self.prefix)
    }

    pub(super) fn state_subjects(&self) -> String {
        format!("{}.state.>", self.prefix)
    }

    /// The record of a message.
    pub(super) fn record(&self, endpoint: &Endpoint, sequence: u64) -> String {
        format!("{}.state.tried.{}.{sequence}", self.prefix, token(endpoint))
    }

    /// The records of all messages of an endpoint.
    pub(super) fn records(&self, endpoint: &Endpoint) -> String {
        format!("{}.state.tried.{}.*", self.prefix, token(endpoint))
    }

    /// Who reads an endpoint.
    pub(super) fn attention(&self, endpoint: &Endpoint) -> String {
        format!("{}.state.read.{}", self.prefix, token(endpoint))
    }

    /// The same of all subscriptions.
    pub(super) fn attention_to_subscriptions(&self) -> String {
        format!("{}.state.read.s.*.*", self.prefix)
    }

    /// The endpoint of which it is kept there who reads it.
    pub(super) fn read_attention(&self, subject: &str) -> Option<Endpoint> {
        read_token(subject.strip_prefix(&self.prefix)?.strip_prefix(".state.read.")?)
    }

    /// How far an endpoint's consumers have come.
    pub(super) fn progress(&self, endpoint: &Endpoint) -> String {
        format!("{}.state.progress.{}", self.prefix, token(endpoint))
    }

    /// An endpoint's fence row.
    pub(super) fn fence(&self, endpoint: &Endpoint) -> String {
        format!("{}.state.fence.{}", self.prefix, token(endpoint))
    }

    /// What is stored there shows the server's clock.
    pub(super) fn clock(&self) -> String {
        format!("{}.state.clock", self.prefix)
    }

    /// The same for locks: a key of the bucket that is no lock's.
    pub(super) fn lock_clock(&self) -> String {
        format!("$KV.{}-locks.=clock", self.prefix)
    }

    /// The stream of messages whose time has not come.
    pub(super) fn later(&self) -> String {
        format!("{}_later", self.prefix)
    }

    pub(super) fn later_subjects(&self) -> String {
        format!("{}.later.>", self.prefix)
    }

    /// The place of one delayed message.
    pub(super) fn delayed(&self, endpoint: &Endpoint, id: &uuid::Uuid) -> String {
        format!("{}.later.{}.{}", self.prefix, token(endpoint), id.simple())
    }

    /// The places of all delayed messages of an endpoint.
    pub(super) fn all_delayed(&self, endpoint: &Endpoint) -> String {
        format!("{}.later.{}.*", self.prefix, token(endpoint))
    }

    /// The endpoint and the id in the place of a delayed message.
    pub(super) fn read_delayed<'s>(&self, subject: &'s str) -> Option<(Endpoint, &'s str)> {
        let rest = subject.strip_prefix(&self.prefix)?.strip_prefix(".later.")?;
        let (token, id) = rest.rsplit_once('.')?;
        Some((read_token(token)?, id))
    }

    /// The stream of dead letters.
    pub(super) fn dead(&self) -> String {
        format!("{}_dead", self.prefix)
    }

    pub(super) fn dead_subjects(&self) -> String {
        format!("{}.dead.>", self.prefix)
    }

    /// The place of one dead letter.
    pub(super) fn dead_letter(&self, endpoint: &Endpoint, id: &uuid::Uuid) -> String {
        format!("{}.dead.{}.{}", self.prefix, token(endpoint), id.simple())
    }

    /// The places of all dead letters of an endpoint.
    pub(super) fn dead_letters(&self, endpoint: &Endpoint) -> String {
        format!("{}.dead.{}.*", self.prefix, token(endpoint))
    }

    /// The stream of the locks' bucket.
    pub(super) fn locks(&self) -> String {
        format!("KV_{}-locks", self.prefix)
    }

    pub(super) fn lock_subjects(&self) -> String {
        format!("$KV.{}-locks.>", self.prefix)
    }

    /// A lock's key in the bucket, as a subject.
    pub(super) fn lock(&self, id: &LockId) -> String {
        format!("$KV.{}-locks.{}", self.prefix, encode(id.as_str()))
    }

    /// The lock of a key.
    pub(super) fn read_lock(&self, subject: &str) -> Option<LockId> {
        let key = subject.strip_prefix("$KV.")?.strip_prefix(&self.prefix)?.strip_prefix("-locks.")?;
        Some(LockId::from(decode(key)?.as_str()))
    }

    /// Where it is told that a lock was freed.
    pub(super) fn freed(&self, id: &LockId) -> String {
        format!("{}.freed.{}", self.prefix, encode(id.as_str()))
    }

    pub(super) fn all_freed(&self) -> String {
        format!("{}.freed.>", self.prefix)
    }
}

fn token(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Queue(name) => format!("q.{name}"),
        Endpoint::Subscription { topic, subscription } => format!("s.{topic}.{subscription}"),
    }
}

fn read_token(token: &str) -> Option<Endpoint> {
    let mut parts = token.split('.');
    match (parts.next()?, parts.next()?, parts.next(), parts.next()) {
        ("q", name, None, None) => Endpoint::queue(name).ok(),
        ("s", topic, Some(subscription), None) => Endpoint::subscription(topic, subscription).ok(),
        _ => None,
    }
}

/// A text of any characters as one of those that keys may have; `=` begins what stands for another byte.
fn encode(text: &str) -> String {
    let mut key = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/') {
            key.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(key, "={byte:02X}");
        }
    }
    key
}

fn decode(key: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'=' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M30
    #[test]
    fn what_is_written_is_read() {
        let names = Names::new("bus-1");
        for text in ["jobs", "a-1-b", "placed/mail", "s/s", "q/q"] {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!(names.endpoint(&names.stream(&endpoint)), Some(endpoint));
        }
        for foreign in ["bus-1_state", "bus-1_q_a_b", "bus_q_jobs", "bus-1_s_a", "bus-1_q_", "orders"] {
            assert_eq!(names.endpoint(foreign), None, "{foreign}");
        }
        let id = uuid::Uuid::new_v4();
        for text in ["jobs", "placed/mail"] {
            let endpoint = Endpoint::parse(text).unwrap();
            let place = names.delayed(&endpoint, &id);
            assert_eq!(
                names.read_delayed(&place),
                Some((endpoint.clone(), id.simple().to_string().as_str()))
            );
            assert_eq!(names.read_attention(&names.attention(&endpoint)), Some(endpoint));
        }
        for foreign in ["bus-1.later.t.a.b", "bus-1.later.q.a", "bus-1.later.q.a.b.c", "bus.later.q.a.b"] {
            assert_eq!(names.read_delayed(foreign), None, "{foreign}");
        }
        for id in ["queue/it", "", "a.b", "å ✓%=.", "x=41"] {
            let id = LockId::from(id);
            assert_eq!(names.read_lock(&names.lock(&id)), Some(id));
        }
        assert_eq!(names.read_lock(&names.lock_clock()), None);
    }
}
