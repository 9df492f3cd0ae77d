//! A message as the text that lies in a queue: Base64 of one line of JSON, a line break, and the body as it is.
//!
//! Where that would be more than Azure takes, the same line (with all headers) and the body are in a blob, and what lies
//! in the queue is the line alone, which names the blob. [`docs.md`](super::super) tells every field.

use std::time::Duration;

use azure_core::base64;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::error::error;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Envelope, Headers, MessageId};

/// What Azure takes, encoded.
const LONGEST_TEXT: usize = 64 << 10;
/// The same before it is encoded.
pub(super) const LONGEST: usize = LONGEST_TEXT / 4 * 3;
/// What the counts of a message may come to have in the course of its life.
const ROOM_FOR_COUNTS: usize = 256;
/// The most that lies in the queue itself when it is sent; what is larger goes into a blob.
pub(super) const LARGEST_INLINE: usize = LONGEST - ROOM_FOR_COUNTS;
/// How much of a reason, or of an error, is kept with a dead letter.
const LONGEST_REASON: usize = 2 << 10;

const VERSION: u8 = 1;

/// What has become of a message so far. Azure counts how often it was taken from the queue; what that means is written
/// down when a claim ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Tally {
    /// Up to which of Azure's counts the others have been kept.
    #[serde(skip_serializing_if = "is_default")]
    seen: u32,
    /// Claims, but for those that were released.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) claims: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) failures: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) crashes: u32,
    /// The claim after `seen` is that of a run that is made alone.
    #[serde(skip_serializing_if = "is_default")]
    alone: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) crashed_alone: bool,
    /// It has been put back, or given back by who ran it: no retention applies to it any more.
    #[serde(skip_serializing_if = "is_default")]
    kept: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Tally {
    /// The same when the message has been taken from the queue for the `taken`th time. Each claim in between ended
    /// without an outcome.
    pub(super) fn claimed(self, taken: u32) -> Self {
        let claims = taken.saturating_sub(self.seen);
        let crashes = claims.saturating_sub(1);
        Tally {
            seen: taken,
            claims: self.claims.saturating_add(claims),
            failures: self.failures,
            crashes: self.crashes.saturating_add(crashes),
            alone: false,
            crashed_alone: self.crashed_alone || (self.alone && crashes > 0),
            kept: self.kept,
        }
    }

    /// The same, and no retention applies any more.
    pub(super) fn kept(self) -> Self {
        Tally { kept: true, ..self }
    }

    /// Of a claimed one: whether a retention applies to it: nobody has run it before, and it has not been put back.
    pub(super) fn is_first(self) -> bool {
        self.claims == 1 && self.failures == 0 && self.crashes == 0 && !self.kept
    }

    /// The same when the message was taken and put back only because it is not due yet.
    pub(super) fn passed_over(self, taken: u32) -> Self {
        Tally { seen: taken, ..self }
    }

    /// Of a claimed one: as if it had not been.
    pub(super) fn released(self) -> Self {
        Tally { claims: self.claims.saturating_sub(1), ..self }
    }

    /// Of a claimed one: the attempt has failed; `alone` says that it was made alone.
    pub(super) fn failed(self, alone: bool) -> Self {
        let failures = self.failures.saturating_add(1);
        match alone {
            true => Tally { failures, crashes: 0, crashed_alone: false, ..self },
            false => Tally { failures, ..self },
        }
    }

    /// Of a claimed one: what is to be found should this claim, whose run is made alone, end in a crash.
    pub(super) fn alone(self) -> Self {
        Tally { seen: self.seen.saturating_sub(1), alone: true, ..self.released() }
    }
}

/// Where headers and body are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// In the queue.
    Here(Headers, Bytes),
    /// In this blob.
    Blob { name: String, bytes: usize },
}

/// Why, when, and after how many claims a message was given up on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Death {
    pub(super) reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// By the clock of whoever gave it up, in microseconds since 1970.
    pub(super) since: i64,
    pub(super) deliveries: u32,
}

impl Death {
    pub(super) fn new(reason: &str, error: Option<&Error>, since: Timestamp, deliveries: u32) -> Self {
        Death {
            reason: shortened(reason.to_owned()),
            error: error.map(|error| shortened(error.to_string())),
            since: since.as_micros(),
            deliveries,
        }
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_REASON {
        let end = (0..=LONGEST_REASON).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A message as it lies in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) id: MessageId,
    pub(super) message_type: String,
    pub(super) sent_at: Timestamp,
    pub(super) time_to_live: Option<Duration>,
    pub(super) content: Content,
    pub(super) tally: Tally,
    /// Not before: where one wait in the queue is not long enough.
    pub(super) due: Option<Timestamp>,
    pub(super) death: Option<Death>,
    /// It was a dead letter, and has been put back.
    pub(super) put_back: bool,
}

/// The line.
#[derive(Serialize, Deserialize)]
struct Line {
    v: u8,
    id: Uuid,
    #[serde(rename = "type")]
    message_type: String,
    sent: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    live: Option<u64>,
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    headers: Headers,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blob: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    #[serde(flatten)]
    tally: Tally,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dead: Option<Death>,
    #[serde(default, skip_serializing_if = "is_default")]
    back: bool,
}

impl Stored {
    /// A message that is sent.
    pub(super) fn sent(envelope: &Envelope) -> Self {
        Stored {
            id: envelope.id,
            message_type: envelope.message_type.clone().into_owned(),
            sent_at: envelope.sent_at,
            time_to_live: envelope.time_to_live,
            content: Content::Here(envelope.headers.clone(), envelope.body.clone()),
            tally: Tally::default(),
            due: None,
            death: None,
            put_back: false,
        }
    }

    /// What lies in the queue under this id of Azure's. What cannot be read is a message as it is: it ends among the dead
    /// letters with the reason, instead of being claimed again and again.
    pub(super) fn read(text: &str, azures_id: &str) -> Self {
        let decoded = base64::decode(text).ok();
        decoded.map(Bytes::from).and_then(parse).unwrap_or_else(|| {
            tracing::error!(target: "bus::azure_storage", azures_id, "a message is damaged, was not sent by bus, or by a later version: it is delivered raw");
            let mut raw = Envelope::new("", text.to_owned(), Timestamp::from_micros(0));
            raw.id = MessageId::from(Uuid::try_parse(azures_id).unwrap_or_else(|_| Uuid::new_v5(&Uuid::NAMESPACE_OID, azures_id.as_bytes())));
            Stored::sent(&raw)
        })
    }

    /// As the bytes that are encoded for the queue, or lie in a blob.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if its headers cannot be written as JSON.
    fn write(&self) -> Result<Vec<u8>> {
        let (headers, body, blob, bytes) = match &self.content {
            Content::Here(headers, body) => (headers.clone(), body.clone(), None, None),
            Content::Blob { name, bytes } => (Headers::new(), Bytes::new(), Some(name.clone()), Some(*bytes)),
        };
        let line = Line {
            v: VERSION,
            id: *self.id.as_uuid(),
            message_type: self.message_type.clone(),
            sent: self.sent_at.as_micros(),
            live: self.time_to_live.map(|live| u64::try_from(live.as_micros()).unwrap_or(u64::MAX)),
            headers,
            blob,
            bytes,
            tally: self.tally,
            due: self.due.map(Timestamp::as_micros),
            dead: self.death.clone(),
            back: self.put_back,
        };
        let mut written = serde_json::to_vec(&line).map_err(|cause| {
            error(ErrorKind::InvalidInput, "the message's headers cannot be written as JSON").caused_by(cause)
        })?;
        written.push(b'\n');
        written.extend_from_slice(&body);
        Ok(written)
    }

    /// The text for the queue, or, where it is longer than `largest` bytes before it is encoded, what has to go into a blob
    /// first.
    ///
    /// # Errors
    /// As of [`Stored::write`]; [`ErrorKind::TooLarge`] if not even the line has room.
    pub(super) fn text(&self, largest: usize) -> Result<Text> {
        let written = self.write()?;
        if written.len() <= largest {
            return Ok(Text::Inline(base64::encode(written)));
        }
        match self.content {
            Content::Here(..) => Ok(Text::TooLong(Bytes::from(written))),
            Content::Blob { .. } => Err(error(
                ErrorKind::TooLarge,
                format!(
                    "the message's type has {} bytes, for which there is no room",
                    self.message_type.len()
                ),
            )),
        }
    }

    /// The text for the queue of a message that has been there before: its counts have room.
    ///
    /// # Errors
    /// As of [`Stored::text`].
    pub(super) fn text_again(&self) -> Result<Text> {
        self.text(LONGEST)
    }

    /// The same, with headers and body in a blob.
    #[must_use]
    pub(super) fn in_blob(self, name: String, content: &Bytes) -> Self {
        Stored { content: Content::Blob { name, bytes: content.len() }, ..self }
    }

    /// The same, with headers and body out of what its blob has; `None` if that is none of ours.
    pub(super) fn with_content_of(self, blob: Bytes) -> Option<Self> {
        let content = parse(blob)?.content;
        matches!(content, Content::Here(..)).then_some(Stored { content, ..self })
    }

    /// What is delivered; empty if headers and body are elsewhere.
    pub(super) fn envelope(&self) -> Envelope {
        let (headers, body) = match &self.content {
            Content::Here(headers, body) => (headers.clone(), body.clone()),
            Content::Blob { .. } => (Headers::new(), Bytes::new()),
        };
        let mut envelope = Envelope::new(self.message_type.clone(), body, self.sent_at);
        envelope.id = self.id;
        envelope.headers = headers;
        if self.put_back {
            envelope.headers.insert(Headers::PUT_BACK, "1");
        }
        envelope.time_to_live = self.time_to_live;
        envelope
    }

    /// The blob that it has.
    pub(super) fn blob(&self) -> Option<&str> {
        match &self.content {
            Content::Here(..) => None,
            Content::Blob { name, .. } => Some(name),
        }
    }

    /// About how many bytes it has in memory.
    pub(super) fn weight(&self) -> usize {
        match &self.content {
            Content::Here(headers, body) => self.message_type.len() + headers.bytes() + body.len(),
            Content::Blob { bytes, .. } => *bytes,
        }
    }

    /// Of a dead letter: as it is put back. Without a time to live, which would have it dead again at once; nor does a
    /// retention apply to it.
    pub(super) fn put_back(self) -> Self {
        let tally = Tally::default().kept();
        Stored { tally, due: None, death: None, time_to_live: None, put_back: true, ..self }
    }
}

/// A message on its way into a queue.
pub(super) enum Text {
    /// What lies in the queue.
    Inline(String),
    /// What has to go into a blob first.
    TooLong(Bytes),
}

fn parse(bytes: Bytes) -> Option<Stored> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line: Line = serde_json::from_slice(bytes.get(..end)?).ok()?;
    if line.v != VERSION {
        return None;
    }
    let content = match line.blob {
        Some(name) => Content::Blob { name, bytes: line.bytes.unwrap_or_default() },
        None => Content::Here(line.headers, bytes.slice(end + 1..)),
    };
    Some(Stored {
        id: MessageId::from(line.id),
        message_type: line.message_type,
        sent_at: Timestamp::from_micros(line.sent),
        time_to_live: line.live.map(Duration::from_micros),
        content,
        tally: line.tally,
        due: line.due.map(Timestamp::from_micros),
        death: line.dead,
        put_back: line.back,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(body: impl Into<Bytes>) -> Envelope {
        let mut envelope = Envelope::new("shop.Placed", body, Timestamp::from_micros(1_790_000));
        envelope.headers = [("traceparent", "00-1"), ("Ünï", "a\u{0}b\n")].into_iter().collect();
        envelope.time_to_live = Some(Duration::from_micros(7));
        envelope
    }

    fn inline(stored: &Stored) -> String {
        match stored.text(LARGEST_INLINE).unwrap() {
            Text::Inline(text) => text,
            Text::TooLong(bytes) => panic!("{} bytes are too long", bytes.len()),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for body in [&b""[..], b"\n", b"{}\n{}", &[0, 255, 10, 128]] {
            let mut stored = Stored::sent(&envelope(body.to_vec()));
            assert_eq!(Stored::read(&inline(&stored), "x").envelope(), envelope_like(&stored, body));
            stored.due = Some(Timestamp::from_micros(5));
            stored.tally = Tally {
                seen: 9,
                claims: 7,
                failures: 2,
                crashes: 3,
                alone: true,
                crashed_alone: true,
                kept: true,
            };
            stored.death = Some(Death::new("why", None, Timestamp::from_micros(3), 7));
            assert_eq!(Stored::read(&inline(&stored), "x"), stored);
            stored = stored.put_back();
            assert_eq!(Stored::read(&inline(&stored), "x"), stored);
        }
    }

    fn envelope_like(stored: &Stored, body: &[u8]) -> Envelope {
        Envelope { id: stored.id, ..envelope(body.to_vec()) }
    }

    /// Others read it: another program, a later version, people.
    #[test]
    fn the_text_is_golden() {
        let mut stored = Stored::sent(&Envelope::new("T", "{\"a\":1}", Timestamp::from_micros(12)));
        stored.id = MessageId::from(Uuid::from_u128(1));
        stored.tally = Tally::default().claimed(2).failed(false);
        let line = r#"{"v":1,"id":"00000000-0000-0000-0000-000000000001","type":"T","sent":12,"seen":2,"claims":2,"failures":1,"crashes":1}"#;
        assert_eq!(base64::decode(inline(&stored)).unwrap(), format!("{line}\n{{\"a\":1}}").into_bytes());
    }

    #[test]
    fn what_was_not_written_here_is_delivered_raw_under_azures_id() {
        let id = Uuid::from_u128(7);
        let later =
            base64::encode(br#"{"v":2,"id":"00000000-0000-0000-0000-000000000001","type":"T","sent":12}"#);
        for text in ["", "hello, no Base64", "aGVsbG8=", &later] {
            let read = Stored::read(text, &id.to_string());
            assert_eq!((read.id, read.envelope().body), (MessageId::from(id), text.to_owned().into()));
        }
        assert_eq!(Stored::read("x", "odd").id, Stored::read("x", "odd").id, "the same each time");
    }

    /// M29: to the byte.
    #[test]
    fn what_is_longer_than_the_limit_goes_into_a_blob() {
        let small = Stored::sent(&envelope("")).write().unwrap().len();
        for (size, fits) in [(LARGEST_INLINE - 1, true), (LARGEST_INLINE, true), (LARGEST_INLINE + 1, false)]
        {
            let stored = Stored::sent(&envelope(vec![b'x'; size - small]));
            match stored.text(LARGEST_INLINE).unwrap() {
                Text::Inline(text) => assert!(fits && text.len() <= LONGEST_TEXT),
                Text::TooLong(bytes) => {
                    assert!(!fits && bytes.len() == size);
                    let there = stored.clone().in_blob("b".to_owned(), &bytes);
                    let back = Stored::read(&inline(&there), "x");
                    assert_eq!((back.blob(), back.weight()), (Some("b"), size));
                    assert_eq!(back.with_content_of(bytes).unwrap().envelope(), stored.envelope());
                }
            }
        }
    }

    #[test]
    fn the_largest_counts_have_room() {
        let mut stored = Stored::sent(&envelope(vec![b'x'; 10]));
        let before = stored.write().unwrap().len();
        let most = u32::MAX;
        stored.tally = Tally {
            seen: most,
            claims: most,
            failures: most,
            crashes: most,
            alone: true,
            crashed_alone: true,
            kept: true,
        };
        stored.due = Some(Timestamp::from_micros(i64::MIN));
        assert!(stored.write().unwrap().len() - before <= ROOM_FOR_COUNTS);
        stored.content = Content::Blob { name: "b".repeat(100), bytes: usize::MAX };
        let long = Error::new(ErrorKind::Handler, "\u{1}".repeat(100_000));
        stored.death = Some(Death::new(&"å".repeat(100_000), Some(&long), Timestamp::from_micros(0), most));
        assert!(matches!(stored.text_again().unwrap(), Text::Inline(_)));
    }

    #[test]
    fn claims_are_told_apart_by_what_became_of_them() {
        let first = Tally::default().claimed(1);
        assert_eq!((first.claims, first.crashes), (1, 0));
        assert_eq!(first.released().claimed(2), Tally { seen: 2, ..first }, "a release is no attempt");
        let retried = first.failed(false).claimed(2);
        assert_eq!((retried.claims, retried.failures, retried.crashes), (2, 1, 0));
        let crashed = first.failed(false).claimed(4);
        assert_eq!((crashed.claims, crashed.failures, crashed.crashes), (4, 1, 2));
        assert_eq!(Tally::default().passed_over(3).claimed(4), Tally { seen: 4, ..first }, "not due yet");
    }

    #[test]
    fn a_crash_of_a_lone_run_is_told_and_its_failure_forgets_the_crashes() {
        let crashed = Tally::default().claimed(3);
        let again = crashed.alone().claimed(4);
        assert_eq!((again.claims, again.crashes, again.crashed_alone), (4, 3, true));
        let failed = crashed.failed(true).claimed(4);
        assert_eq!((failed.failures, failed.crashes, failed.crashed_alone), (1, 0, false));
        let released = crashed.released().claimed(5);
        assert!(released.crashes == 3 && !released.crashed_alone, "{released:?}");
    }
}
