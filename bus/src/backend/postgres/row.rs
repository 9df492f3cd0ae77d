//! Between rows and what they mean.

use std::time::Duration;

use bytes::Bytes;
use tokio_postgres::Row;
use uuid::Uuid;

use super::error::Failure;
use crate::clock::Timestamp;
use crate::contract::Fence;
use crate::message::{Envelope, Headers, MessageId};

/// What a message's columns hold.
#[derive(Debug)]
pub(super) struct RawEnvelope {
    id: Uuid,
    message_type: String,
    headers: Option<String>,
    sent_at: i64,
    ttl: Option<i64>,
    body: Bytes,
}

impl RawEnvelope {
    /// From the columns `uuid, type, headers, sent_at, ttl, body` at `first`.
    pub(super) fn read(row: &Row, first: usize) -> Result<Self, Failure> {
        Ok(RawEnvelope {
            id: row.try_get(first)?,
            message_type: row.try_get(first + 1)?,
            headers: row.try_get(first + 2)?,
            sent_at: row.try_get(first + 3)?,
            ttl: row.try_get(first + 4)?,
            body: Bytes::copy_from_slice(row.try_get(first + 5)?),
        })
    }

    /// Whether its time to live has passed.
    pub(super) fn is_expired(&self, now: i64) -> bool {
        self.ttl.is_some_and(|live| now >= self.sent_at.saturating_add(live))
    }

    /// As an envelope.
    pub(super) fn into_envelope(self) -> Envelope {
        let mut envelope = Envelope::new(self.message_type, self.body, Timestamp::from_micros(self.sent_at));
        envelope.id = MessageId::from(self.id);
        envelope.time_to_live = self.ttl.map(|live| Duration::from_micros(live.max(0).unsigned_abs()));
        envelope.headers = self.headers.as_deref().map(headers_from_text).unwrap_or_default();
        envelope
    }
}

/// Headers as a column. They are texts by texts, which JSON can always hold.
pub(super) fn headers_column(headers: &Headers) -> Option<String> {
    (!headers.is_empty()).then(|| serde_json::to_string(headers).unwrap_or_default())
}

fn headers_from_text(text: &str) -> Headers {
    serde_json::from_str(text).unwrap_or_else(|e| {
        // The message itself is whole: better without its headers than not at all.
        tracing::warn!(target: "bus::postgres", error = %e, "a message's headers cannot be read and are left out");
        Headers::new()
    })
}

/// A text as a column: the server takes no NUL.
pub(super) fn text_column(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The longest time that is reckoned with, a thousand years: far from where sums run over.
const LONGEST: i64 = 1000 * 366 * 86_400_000_000;

/// A span of time as a column.
pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(LONGEST).min(LONGEST)
}

/// A span of time from a column.
pub(super) fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// A moment as a column.
pub(super) fn moment_column(moment: Timestamp) -> i64 {
    moment.as_micros().clamp(-LONGEST, 10 * LONGEST)
}

/// A fence as a column; every fence fits.
pub(super) fn fence_column(fence: Fence) -> i64 {
    i64::try_from(fence.get()).unwrap_or(i64::MAX)
}

/// A fence from a column.
pub(super) fn fence_from(column: i64) -> Fence {
    Fence::new(u64::try_from(column).unwrap_or(0))
}
