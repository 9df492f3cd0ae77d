//! A message as one piece of bytes, as it lies in a stream.
//!
//! `bus` and the version (4 bytes), id (16), when it was sent (8, microseconds), its time to live (8, microseconds, −1 for none), then
//! type, number of headers, and each header's name and value, every length written as a varint; the rest is the body.

use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::message::{Envelope, Headers, MessageId};

/// What each begins with, so that somebody else's bytes are not taken for ours; the last one is the version.
const VERSION: &[u8] = b"bus\x01";
/// What stands for no time to live.
const FOR_EVER: i64 = -1;

/// An envelope as bytes.
pub(super) fn encode(envelope: &Envelope) -> Bytes {
    let mut bytes = Vec::with_capacity(64 + envelope.bytes());
    bytes.extend_from_slice(VERSION);
    bytes.extend_from_slice(envelope.id.as_uuid().as_bytes());
    bytes.extend_from_slice(&envelope.sent_at.as_micros().to_be_bytes());
    let live = envelope.time_to_live.map(|live| i64::try_from(live.as_micros()).unwrap_or(i64::MAX));
    bytes.extend_from_slice(&live.unwrap_or(FOR_EVER).to_be_bytes());
    put_text(&mut bytes, &envelope.message_type);
    put_length(&mut bytes, envelope.headers.len());
    for (name, value) in envelope.headers.iter() {
        put_text(&mut bytes, name);
        put_text(&mut bytes, value);
    }
    bytes.extend_from_slice(&envelope.body);
    bytes.into()
}

/// The envelope in these bytes; `None` if somebody else has put them there, or a later version of this crate.
pub(super) fn decode(bytes: &Bytes) -> Option<Envelope> {
    let mut rest = bytes.clone();
    if take(&mut rest, VERSION.len())? != VERSION {
        return None;
    }
    let id = Uuid::from_slice(&take(&mut rest, 16)?).ok()?;
    let sent_at = Timestamp::from_micros(take_number(&mut rest)?);
    let live = take_number(&mut rest)?;
    let kind = take_text(&mut rest)?;
    let mut headers = Headers::new();
    for _ in 0..take_length(&mut rest)? {
        let name = take_text(&mut rest)?;
        headers.insert(name, take_text(&mut rest)?);
    }
    let mut envelope = Envelope::new(kind, rest, sent_at);
    envelope.id = MessageId::from(id);
    envelope.time_to_live = u64::try_from(live).ok().map(Duration::from_micros);
    envelope.headers = headers;
    Some(envelope)
}

/// What cannot be read, as the body of a message with this id, so that it can be kept with the dead letters.
pub(super) fn raw(bytes: Bytes) -> Envelope {
    Envelope::new("", bytes, Timestamp::from_micros(0))
}

pub(super) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_length(bytes, text.len());
    bytes.extend_from_slice(text.as_bytes());
}

fn put_length(bytes: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        bytes.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
}

fn take(rest: &mut Bytes, length: usize) -> Option<Bytes> {
    (rest.len() >= length).then(|| rest.split_to(length))
}

fn take_number(rest: &mut Bytes) -> Option<i64> {
    Some(i64::from_be_bytes(take(rest, 8)?[..].try_into().ok()?))
}

fn take_length(rest: &mut Bytes) -> Option<usize> {
    let mut length = 0_usize;
    for shift in (0..35).step_by(7) {
        let byte = take(rest, 1)?[0];
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(length);
        }
    }
    None
}

pub(super) fn take_text(rest: &mut Bytes) -> Option<String> {
    let length = take_length(rest)?;
    String::from_utf8(take(rest, length)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope() -> Envelope {
        let mut envelope =
            Envelope::new("shop.Placed", vec![0, 255, b'}'], Timestamp::from_micros(1_790_000));
        envelope.headers =
            [("traceparent", "00-1".to_owned()), ("Ünï", "a\u{0}b".repeat(100))].into_iter().collect();
        envelope
    }

    #[test]
    fn what_is_written_is_read() {
        let mut envelope = envelope();
        for live in
            [None, Some(Duration::ZERO), Some(Duration::from_micros(7)), Some(Duration::from_secs(1 << 40))]
        {
            envelope.time_to_live = live;
            assert_eq!(decode(&encode(&envelope)), Some(envelope.clone()));
        }
        envelope.headers = (0..3000).map(|n| (n.to_string(), "v".repeat(n % 200))).collect();
        assert_eq!(decode(&encode(&envelope)), Some(envelope.clone()));
        let bare = Envelope::new("", "", envelope.sent_at);
        assert_eq!(decode(&encode(&bare)), Some(bare));
    }

    /// M20
    #[test]
    fn foreign_bytes_are_no_message() {
        let bytes = encode(&envelope());
        for length in 0..bytes.len() - 3 {
            assert_eq!(decode(&bytes.slice(..length)), None, "the first {length} bytes");
        }
        let mut later = bytes.to_vec();
        later[3] = 2;
        for foreign in [later, b"{}".to_vec(), vec![1; 400], vec![0xff; 400]] {
            assert_eq!(decode(&foreign.into()), None);
        }
    }
}
