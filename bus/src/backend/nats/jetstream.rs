//! What JetStream is asked: reading, writing and removing single messages, and what streams and consumers there are.

use std::collections::BTreeMap;

use async_nats::Message;
use base64::Engine as _;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::{Ask, Client};
use super::error::{Lost, Refusal, no_jetstream, unexpected};
use super::streams::Home;
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::message::Endpoint;

/// The header that makes a write conditional on the last message of its subject.
pub(super) const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
/// The header by which the server knows a message that it has stored already.
pub(super) const MESSAGE_ID: &str = "Nats-Msg-Id";

/// An answer, or a refusal.
pub(super) type Told<T> = std::result::Result<T, Refusal>;

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It is stored, under this number.
    As(u64),
    /// Its condition does not hold.
    Conflict,
}

/// A stored message.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) subject: String,
    pub(super) sequence: u64,
    /// When it was stored, by the server's clock.
    pub(super) time: Timestamp,
    /// As they are sent: lines of names and values.
    pub(super) headers: String,
    pub(super) data: Bytes,
}

#[derive(Deserialize)]
struct Envelope<T> {
    error: Option<Refusal>,
    #[serde(flatten)]
    content: Option<T>,
}

#[derive(Deserialize)]
struct Acknowledged {
    seq: u64,
}

#[derive(Deserialize)]
struct Gotten {
    message: RawMessage,
}

#[derive(Deserialize)]
struct RawMessage {
    subject: String,
    seq: u64,
    #[serde(default)]
    hdrs: String,
    #[serde(default)]
    data: String,
    time: String,
}

/// A page of names.
#[derive(Deserialize)]
struct Names {
    total: usize,
    streams: Option<Vec<String>>,
    consumers: Option<Vec<String>>,
}

/// What is told of a stream.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct StreamInfo {
    /// When it was made, as the server writes it: tells it from another one of the same name.
    pub(super) created: String,
    pub(super) state: StreamState,
}

/// How much is in a stream.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct StreamState {
    pub(super) messages: u64,
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
    #[serde(default)]
    pub(super) subjects: Option<BTreeMap<String, u64>>,
}

/// The answer to something that is done or not.
#[derive(Deserialize)]
struct Done {
    #[serde(default)]
    success: bool,
}

/// Reads an answer of JetStream.
fn read<T: DeserializeOwned>(message: &Message) -> Result<Told<T>> {
    let strange = |cause| unexpected("no JSON of JetStream's").caused_by(cause);
    let envelope: Envelope<Value> = serde_json::from_slice(&message.payload).map_err(strange)?;
    match (envelope.error, envelope.content) {
        (Some(refusal), _) => Ok(Err(refusal)),
        (None, Some(content)) => Ok(Ok(serde_json::from_value(content).map_err(strange)?)),
        (None, None) => Err(unexpected("nothing")),
    }
}

/// What the answer to a write says.
fn written(answer: Option<Message>) -> Result<Option<Written>> {
    let Some(answer) = answer else { return Ok(None) };
    match read::<Acknowledged>(&answer)? {
        Ok(written) => Ok(Some(Written::As(written.seq))),
        Err(refusal) if refusal.is_wrong_sequence() => Ok(Some(Written::Conflict)),
        Err(refusal) => Err(refusal.into_error()),
    }
}

/// A message that was asked for, if it is there.
fn stored(told: Told<Gotten>) -> Result<Option<Stored>> {
    let Some(Gotten { message }) = found(told)? else { return Ok(None) };
    let decode = |text: &str| {
        let decoded = base64::engine::general_purpose::STANDARD.decode(text);
        decoded.map_err(|cause| unexpected("a message that is no Base64").caused_by(cause))
    };
    let time = read_time(&message.time).ok_or_else(|| unexpected("a time that is none"))?;
    Ok(Some(Stored {
        headers: String::from_utf8_lossy(&decode(&message.hdrs)?).into_owned(),
        data: decode(&message.data)?.into(),
        subject: message.subject,
        sequence: message.seq,
        time,
    }))
}

/// Whether a message that was to be removed was there.
fn removed(told: Told<Done>) -> Result<bool> {
    match told {
        Ok(done) => Ok(done.success),
        // "no message found" has no code of its own.
        Err(refusal) if refusal.is_not_found() || refusal.is_no_message() => Ok(false),
        Err(refusal) => Err(refusal.into_error()),
    }
}

/// A refusal where none was expected.
pub(super) fn refused<T>(told: Told<T>) -> Result<T> {
    told.map_err(Refusal::into_error)
}

/// Nothing, where it is not there.
pub(super) fn found<T>(told: Told<T>) -> Result<Option<T>> {
    match told {
        Ok(content) => Ok(Some(content)),
        Err(refusal) if refusal.is_not_found() => Ok(None),
        Err(refusal) => Err(refusal.into_error()),
    }
}

impl Client {
    /// Asks JetStream for something that may be asked again.
    pub(super) async fn request<T: DeserializeOwned>(
        &self,
        operation: &str,
        what: &Value,
        until: Instant,
    ) -> Result<Told<T>> {
        let payload = if what.is_null() { Vec::new() } else { what.to_string().into_bytes() };
        let answer = self.ask(Ask::new(self.api(operation), payload), until, Lost::Again).await?;
        read(&answer.ok_or_else(no_jetstream)?)
    }

    /// Stores a message. `None` if there is no stream for it: nothing has happened.
    pub(super) async fn write_once(&self, ask: Ask, until: Instant, lost: Lost) -> Result<Option<Written>> {
        written(self.ask(ask, until, lost).await?)
    }

    /// Stores messages in their order; each as of [`write_once`](Client::write_once).
    pub(super) async fn write_in_order(
        &self,
        asks: Vec<Ask>,
        until: Instant,
        lost: Lost,
    ) -> Vec<Result<Option<Written>>> {
        let answers = self.ask_in_order(asks, until, lost).await;
        answers.into_iter().map(|answer| written(answer?)).collect()
    }

    /// Stores a message in a stream that is made where it is missing.
    pub(super) async fn write(&self, home: &Home, ask: Ask, until: Instant, lost: Lost) -> Result<Written> {
        loop {
            if let Some(written) = self.write_once(ask.clone(), until, lost).await? {
                return Ok(written);
            }
            self.furnish_again(home, until).await?;
        }
    }

    /// The last message of a subject.
    pub(super) async fn last_of(
        &self,
        stream: &str,
        subject: &str,
        until: Instant,
    ) -> Result<Option<Stored>> {
        self.get(stream, &json!({ "last_by_subj": subject }), until).await
    }

    /// The first message of these subjects from a number on.
    pub(super) async fn next_of(
        &self,
        stream: &str,
        subjects: &str,
        from: u64,
        until: Instant,
    ) -> Result<Option<Stored>> {
        self.get(stream, &json!({ "seq": from.max(1), "next_by_subj": subjects }), until).await
    }

    async fn get(&self, stream: &str, which: &Value, until: Instant) -> Result<Option<Stored>> {
        stored(self.request(&format!("STREAM.MSG.GET.{stream}"), which, until).await?)
    }

    /// Removes a message; whether it was there.
    pub(super) async fn remove(&self, stream: &str, sequence: u64, until: Instant) -> Result<bool> {
        let what = json!({ "seq": sequence, "no_erase": true });
        removed(self.request(&format!("STREAM.MSG.DELETE.{stream}"), &what, until).await?)
    }

    /// What lies under these numbers, as far as it is there.
    pub(super) async fn all_of(
        &self,
        stream: &str,
        sequences: std::ops::RangeInclusive<u64>,
        until: Instant,
    ) -> Result<Vec<Stored>> {
        self.get_all(stream, sequences.map(|sequence| json!({ "seq": sequence })), until).await
    }

    /// The last message of each of these subjects, as far as it is there.
    pub(super) async fn last_of_each(
        &self,
        stream: &str,
        subjects: &[String],
        until: Instant,
    ) -> Result<Vec<Stored>> {
        self.get_all(stream, subjects.iter().map(|subject| json!({ "last_by_subj": subject })), until).await
    }

    async fn get_all(
        &self,
        stream: &str,
        which: impl Iterator<Item = Value>,
        until: Instant,
    ) -> Result<Vec<Stored>> {
        let operation = self.api(&format!("STREAM.MSG.GET.{stream}"));
        let asks = which.map(|which| Ask::new(operation.as_str(), which.to_string().into_bytes())).collect();
        let answers = self.ask_in_order(asks, until, Lost::Again).await;
        let stored = answers.into_iter().map(|answer| stored(read(&answer?.ok_or_else(no_jetstream)?)?));
        stored.filter_map(Result::transpose).collect()
    }

    /// Removes messages; answers of each whether it was there, as far as that is known.
    pub(super) async fn remove_all(
        &self,
        stream: &str,
        sequences: Vec<u64>,
        until: Instant,
    ) -> Vec<Result<bool>> {
        let operation = self.api(&format!("STREAM.MSG.DELETE.{stream}"));
        let what = |sequence: &u64| json!({ "seq": sequence, "no_erase": true }).to_string().into_bytes();
        let asks = sequences.iter().map(|sequence| Ask::new(operation.as_str(), what(sequence))).collect();
        let answers = self.ask_in_order(asks, until, Lost::Again).await;
        answers.into_iter().map(|answer| removed(read(&answer?.ok_or_else(no_jetstream)?)?)).collect()
    }

    /// Deletes a stream with everything in it; that it is not there is as good.
    pub(super) async fn delete_stream(&self, stream: &str, until: Instant) -> Result<()> {
        found(self.request::<Done>(&format!("STREAM.DELETE.{stream}"), &Value::Null, until).await?).map(drop)
    }

    /// Removes the messages of these subjects that were stored before one of that number.
    pub(super) async fn purge_before(
        &self,
        stream: &str,
        subjects: &str,
        number: u64,
        until: Instant,
    ) -> Result<()> {
        let (operation, which) =
            (format!("STREAM.PURGE.{stream}"), json!({ "filter": subjects, "seq": number }));
        found(self.request::<Done>(&operation, &which, until).await?).map(drop)
    }

    /// Removes all messages of a subject.
    pub(super) async fn purge(&self, stream: &str, subject: &str, until: Instant) -> Result<()> {
        let (operation, which) = (format!("STREAM.PURGE.{stream}"), json!({ "filter": subject }));
        found(self.request::<Done>(&operation, &which, until).await?).map(drop)
    }

    /// What there is in a stream, with the subjects that match.
    pub(super) async fn stream_info(
        &self,
        stream: &str,
        subjects: Option<&str>,
        until: Instant,
    ) -> Result<Option<StreamInfo>> {
        let what = subjects.map_or(Value::Null, |subjects| json!({ "subjects_filter": subjects }));
        found(self.request(&format!("STREAM.INFO.{stream}"), &what, until).await?)
    }

    /// The subjects in a stream that match.
    pub(super) async fn subjects(&self, stream: &str, matching: &str, until: Instant) -> Result<Vec<String>> {
        let mut all: Vec<String> = Vec::new();
        loop {
            let what = json!({ "subjects_filter": matching, "offset": all.len() });
            let told = self.request::<StreamInfo>(&format!("STREAM.INFO.{stream}"), &what, until).await?;
            let page = found(told)?.and_then(|info| info.state.subjects).unwrap_or_default();
            let is_whole = page.len() < 100_000;
            all.extend(page.into_keys());
            if is_whole {
                return Ok(all);
            }
        }
    }

    /// All endpoints, sorted.
    pub(super) async fn endpoints(&self, until: Instant) -> Result<Vec<Endpoint>> {
        let mut endpoints = Vec::new();
        for subjects in self.names.all_subjects() {
            let streams = self.streams(&subjects, until).await?;
            endpoints.extend(streams.iter().filter_map(|stream| self.names.endpoint(stream)));
        }
        endpoints.sort();
        endpoints.dedup();
        Ok(endpoints)
    }

    /// The streams whose subjects match.
    pub(super) async fn streams(&self, subjects: &str, until: Instant) -> Result<Vec<String>> {
        self.names("STREAM.NAMES", json!({ "subject": subjects }), until).await
    }

    /// The consumers of a stream.
    pub(super) async fn consumers(&self, stream: &str, until: Instant) -> Result<Vec<String>> {
        self.names(&format!("CONSUMER.NAMES.{stream}"), json!({}), until).await
    }

    async fn names(&self, operation: &str, mut what: Value, until: Instant) -> Result<Vec<String>> {
        let mut all = Vec::new();
        loop {
            what["offset"] = all.len().into();
            let told = self.request::<Names>(operation, &what, until).await?;
            let Some(page) = found(told)? else { return Ok(all) };
            let names = page.streams.or(page.consumers).unwrap_or_default();
            let is_last = names.is_empty();
            all.extend(names);
            if is_last || all.len() >= page.total {
                return Ok(all);
            }
        }
    }
}

/// A time as JetStream writes it: `2026-11-30T20:18:44.275769058Z`, to the microsecond.
pub(super) fn read_time(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut time = time.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let (hours, minutes, seconds) = (time.next()??, time.next()??, time.next()??);
    let micros = format!("{fraction:0<6}").get(..6)?.parse::<i64>().ok()?;
    // Days since 1970 in the Gregorian calendar, counted in years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (153 * month + 2) / 5
        + day
        - 1
        - 719_468;
    let seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
    Some(Timestamp::from_micros(seconds.checked_mul(1_000_000)?.checked_add(micros)?))
}

/// What was asked for must be there.
pub(super) fn missing() -> Error {
    unexpected("something is missing that has just been made")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_to_the_microsecond() {
        for (text, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:00.000001999Z", 1),
            ("2000-02-29T12:00:00.5Z", 951_825_600_500_000),
            ("2026-11-30T20:18:44.275769058Z", 1_796_069_924_275_769),
        ] {
            assert_eq!(read_time(text), Some(Timestamp::from_micros(micros)), "{text}");
        }
        for foreign in ["", "Z", "2026-11-30", "2026-11-30T20:18Z", "0001-01-01T00:00:00"] {
            assert_eq!(read_time(foreign), None, "{foreign}");
        }
    }
}
