//! A message as one piece of bytes, as it lies in the server.
//!
//! What a script has to read or replace stands first, at fixed places: the version (1 byte), when the message expires
//! (16 decimal digits, microseconds), its time to live (8 bytes), its id (16 bytes). Then follow when it was sent
//! (8 bytes), the lengths of type (2 bytes) and headers (4 bytes), the type, the headers as JSON, and the body itself.

use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::error::error;
use crate::clock::Timestamp;
use crate::error::{ErrorKind, Result};
use crate::message::{Envelope, Headers, MessageId};

const VERSION: u8 = 1;
/// Later than any expiry: the year 2286.
const NEVER: i64 = 9_999_999_999_999_999;
/// When a message expires that was put back from the dead letters: never either.
const PUT_BACK: i64 = NEVER - 1;
/// What stands for no time to live.
const FOR_EVER: i64 = -1;

/// An envelope as bytes.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if its type or headers are longer than can be written down.
pub(super) fn encode(envelope: &Envelope) -> Result<Vec<u8>> {
    let too_long = || error(ErrorKind::InvalidInput, "the message's type or headers are too long");
    let headers = match envelope.headers.is_empty() {
        true => Vec::new(),
        false => serde_json::to_vec(&envelope.headers).map_err(|e| too_long().caused_by(e))?,
    };
    let kind = envelope.message_type.as_bytes();
    let kind_length = u16::try_from(kind.len()).map_err(|_| too_long())?;
    let headers_length = u32::try_from(headers.len()).map_err(|_| too_long())?;
    let live = envelope.time_to_live.map(|live| i64::try_from(live.as_micros()).unwrap_or(i64::MAX));
    let expires = live.map_or(NEVER, |live| envelope.sent_at.as_micros().saturating_add(live));

    let mut bytes = Vec::with_capacity(55 + kind.len() + headers.len() + envelope.body.len());
    bytes.push(VERSION);
    bytes.extend_from_slice(format!("{:016}", expires.clamp(0, NEVER)).as_bytes());
    bytes.extend_from_slice(&live.unwrap_or(FOR_EVER).to_be_bytes());
    bytes.extend_from_slice(envelope.id.as_uuid().as_bytes());
    bytes.extend_from_slice(&envelope.sent_at.as_micros().to_be_bytes());
    bytes.extend_from_slice(&kind_length.to_be_bytes());
    bytes.extend_from_slice(&headers_length.to_be_bytes());
    bytes.extend_from_slice(kind);
    bytes.extend_from_slice(&headers);
    bytes.extend_from_slice(&envelope.body);
    Ok(bytes)
}

/// The envelope in these bytes. What cannot be read is delivered all the same, as it is: it ends among the dead letters
/// with the reason, instead of being claimed again and again.
pub(super) fn decode(bytes: Vec<u8>) -> Envelope {
    let bytes = Bytes::from(bytes);
    read(bytes.clone()).unwrap_or_else(|| {
        tracing::error!("a stored message is damaged, or of a later version of bus: it is delivered raw");
        Envelope::new("", bytes, Timestamp::from_micros(0))
    })
}

fn read(mut rest: Bytes) -> Option<Envelope> {
    if take::<1>(&mut rest)? != [VERSION] {
        return None;
    }
    let is_put_back = take::<16>(&mut rest)? == *PUT_BACK.to_string().as_bytes();
    let live = i64::from_be_bytes(take(&mut rest)?);
    let id = Uuid::from_bytes(take(&mut rest)?);
    let sent_at = Timestamp::from_micros(i64::from_be_bytes(take(&mut rest)?));
    let kind_length = usize::from(u16::from_be_bytes(take(&mut rest)?));
    let headers_length = usize::try_from(u32::from_be_bytes(take(&mut rest)?)).ok()?;
    let kind = take_bytes(&mut rest, kind_length)?;
    let kind = std::str::from_utf8(&kind).ok()?.to_owned();
    let headers = take_bytes(&mut rest, headers_length)?;

    let mut envelope = Envelope::new(kind, rest, sent_at);
    envelope.id = MessageId::from(id);
    envelope.time_to_live = u64::try_from(live).ok().map(Duration::from_micros);
    if !headers.is_empty() {
        envelope.headers = read_headers(&headers);
    }
    if is_put_back {
        envelope.headers.insert(Headers::PUT_BACK, "1");
    }
    Some(envelope)
}

fn read_headers(json: &[u8]) -> Headers {
    serde_json::from_slice(json).unwrap_or_else(|e| {
        // The message itself is whole: better without its headers than not at all.
        tracing::warn!(error = %e, "a message's headers cannot be read and are left out");
        Headers::new()
    })
}

fn take<const LENGTH: usize>(rest: &mut Bytes) -> Option<[u8; LENGTH]> {
    take_bytes(rest, LENGTH)?[..].try_into().ok()
}

fn take_bytes(rest: &mut Bytes, length: usize) -> Option<Bytes> {
    (rest.len() >= length).then(|| rest.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope() -> Envelope {
        let mut envelope =
            Envelope::new("shop.Placed", vec![0, 255, b'}'], Timestamp::from_micros(1_790_000));
        envelope.headers = [("traceparent", "00-1"), ("Ünï", "a\u{0}b")].into_iter().collect();
        envelope
    }

    #[test]
    fn what_is_written_is_read() {
        let mut envelope = envelope();
        for live in
            [None, Some(Duration::ZERO), Some(Duration::from_micros(7)), Some(Duration::from_secs(1 << 40))]
        {
            envelope.time_to_live = live;
            assert_eq!(decode(encode(&envelope).unwrap()), envelope);
        }
        assert_eq!(decode(encode(&Envelope::new("", "", envelope.sent_at)).unwrap()).body.len(), 0);
    }

    /// The scripts read these places.
    #[test]
    fn expiry_and_id_stand_where_the_scripts_look() {
        let mut envelope = envelope();
        envelope.time_to_live = Some(Duration::from_micros(10));
        let bytes = encode(&envelope).unwrap();
        assert_eq!(&bytes[1..17], b"0000000001790010");
        assert_eq!(&bytes[25..41], envelope.id.as_uuid().as_bytes());
        envelope.sent_at = Timestamp::from_micros(-5_000);
        assert_eq!(&encode(&envelope).unwrap()[1..17], b"0000000000000000");
        envelope.time_to_live = None;
        assert_eq!(&encode(&envelope).unwrap()[1..25], b"9999999999999999\xff\xff\xff\xff\xff\xff\xff\xff");
    }

    #[test]
    fn what_cannot_be_read_is_delivered_raw() {
        let bytes = encode(&envelope()).unwrap();
        let mut later = bytes.clone();
        later[0] = 2;
        for damaged in (0..55).map(|length| bytes[..length].to_vec()).chain([later]) {
            assert_eq!(decode(damaged.clone()).body, damaged);
        }
    }
}
