//! Between rows and what they mean.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::Row;
use uuid::Uuid;

use crate::clock::{BootInstant, Timestamp};
use crate::message::{Envelope, Headers, MessageId};

/// What a message's columns hold, not yet read: the writer's thread has better things to do.
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
    /// From the columns `uuid, type, headers, sent_at, ttl` at `first`, and the body at `body`.
    pub(super) fn read(row: &Row<'_>, first: usize, body: usize) -> rusqlite::Result<Self> {
        Ok(RawEnvelope {
            id: Uuid::from_bytes(row.get(first)?),
            message_type: row.get(first + 1)?,
            headers: row.get(first + 2)?,
            sent_at: row.get(first + 3)?,
            ttl: row.get(first + 4)?,
            body: Bytes::copy_from_slice(row.get_ref(body)?.as_blob()?),
        })
    }

    /// How many bytes it has.
    pub(super) fn bytes(&self) -> usize {
        self.message_type.len() + self.headers.as_ref().map_or(0, String::len) + self.body.len()
    }

    /// Whether its time to live has passed.
    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        self.ttl.is_some_and(|live| now.as_micros() >= self.sent_at.saturating_add(live))
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

/// An envelope's columns.
pub(super) struct Columns<'e> {
    pub(super) id: &'e [u8],
    pub(super) message_type: &'e str,
    pub(super) headers: Option<String>,
    pub(super) sent_at: i64,
    pub(super) ttl: Option<i64>,
    pub(super) body: &'e [u8],
}

impl<'e> Columns<'e> {
    pub(super) fn of(envelope: &'e Envelope) -> Self {
        Columns {
            id: envelope.id.as_uuid().as_bytes(),
            message_type: &envelope.message_type,
            // `Headers` are texts by texts, which JSON can always hold.
            headers: (!envelope.headers.is_empty())
                .then(|| serde_json::to_string(&envelope.headers).unwrap_or_default()),
            sent_at: envelope.sent_at.as_micros(),
            ttl: envelope.time_to_live.map(|live| i64::try_from(live.as_micros()).unwrap_or(i64::MAX)),
            body: &envelope.body,
        }
    }
}

fn headers_from_text(text: &str) -> Headers {
    serde_json::from_str(text).unwrap_or_else(|e| {
        // The message itself is whole: better without its headers than not at all.
        tracing::warn!(error = %e, "a message's headers cannot be read and are left out");
        Headers::new()
    })
}

/// An instant as a column.
pub(super) fn nanos(instant: BootInstant) -> i64 {
    i64::try_from(instant.as_nanos()).unwrap_or(i64::MAX)
}

/// An instant from a column.
pub(super) fn instant(nanos: i64) -> BootInstant {
    BootInstant::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// A fence as a column; every fence fits.
pub(super) fn fence_column(fence: crate::contract::Fence) -> i64 {
    i64::try_from(fence.get()).unwrap_or(i64::MAX)
}

/// A fence from a column.
pub(super) fn fence_from(column: i64) -> crate::contract::Fence {
    crate::contract::Fence::new(u64::try_from(column).unwrap_or(0))
}
