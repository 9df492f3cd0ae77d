//! Who reads an endpoint: a record beside those of messages, stored anew by each host that says so, so that the time at
//! which it was stored is when somebody last did, by the server's clock.
//!
//! A subscription's end begins with a mark in the same place, written under the condition that nobody has spoken meanwhile;
//! and who speaks writes under the condition that the end has not begun. So of a host that attends and one that drops in the
//! same moment one comes first, and the other hears of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::client::{Ask, Client};
use super::error::{Lost, error, unexpected};
use super::jetstream::{EXPECTED, Written};
use super::streams::Home;
use crate::clock::Timestamp;
use crate::contract::{ATTENDED_EVERY, Attended, UNATTENDED_AFTER};
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;

/// For how long the mark of an end keeps everyone waiting: many times what an end takes. An older one is that of somebody
/// who died over it.
pub(super) const ENDING: Duration = Duration::from_secs(60);

/// A record as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    /// In microseconds.
    retention: Option<u64>,
    /// Whether its end has begun.
    #[serde(default)]
    ending: bool,
    /// When it was attended to before its end began, in microseconds.
    #[serde(default)]
    attended: Option<i64>,
}

/// A record, its number, and when it was stored.
#[derive(Clone, Debug)]
pub(super) struct Attention {
    row: Row,
    pub(super) revision: u64,
    stored: Timestamp,
}

impl Attention {
    /// When a host last said that it reads the endpoint.
    pub(super) fn attended(&self) -> Option<Timestamp> {
        match self.row.ending {
            true => self.row.attended.map(Timestamp::from_micros),
            false => Some(self.stored),
        }
    }

    pub(super) fn retention(&self) -> Option<Duration> {
        self.row.retention.map(Duration::from_micros)
    }

    /// Whether its end has begun, however long ago.
    pub(super) fn has_an_end(&self) -> bool {
        self.row.ending
    }

    /// Whether somebody may be about to end it now.
    fn is_ending(&self, now: Timestamp) -> bool {
        self.row.ending && now.since(self.stored) < ENDING
    }

    /// Whether that was said a moment ago, be it by another host.
    fn says(&self, retention: Option<u64>, now: Timestamp) -> bool {
        !self.row.ending && self.row.retention == retention && now.since(self.stored) < ATTENDED_EVERY / 3
    }
}

impl Client {
    /// What is known of who reads an endpoint.
    pub(super) async fn attention(&self, endpoint: &Endpoint, until: Instant) -> Result<Option<Attention>> {
        let subject = self.names.attention(endpoint);
        let Some(stored) = self.last_of(&self.names.state(), &subject, until).await? else { return Ok(None) };
        let row: Row = serde_json::from_slice(&stored.data).map_err(|cause| {
            error(ErrorKind::Corrupt, "who reads an endpoint cannot be read")
                .with("endpoint", endpoint)
                .caused_by(cause)
        })?;
        Ok(Some(Attention { row, revision: stored.sequence, stored: stored.time }))
    }

    async fn write_attention(
        &self,
        endpoint: &Endpoint,
        row: &Row,
        before: Option<&Attention>,
        until: Instant,
    ) -> Result<Written> {
        let bytes = serde_json::to_vec(row)
            .map_err(|cause| unexpected("a record that cannot be written").caused_by(cause))?;
        let expected = before.map_or(0, |before| before.revision);
        let ask = Ask::new(self.names.attention(endpoint), bytes).with(EXPECTED, expected);
        self.write(&Home::State, ask, until, Lost::Again).await
    }

    /// Notes that a host reads an endpoint that is there. One that is just being dropped is as good as gone.
    pub(super) async fn attend(&self, attended: &Attended, until: Instant) -> Result<()> {
        let retention = attended.retention.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        let row = Row { retention, ..Row::default() };
        loop {
            let before = self.attention(&attended.endpoint, until).await?;
            if let Some(before) = &before {
                let now = self.server_now(until).await?;
                if before.is_ending(now) || before.says(retention, now) {
                    return Ok(());
                }
            }
            let written = self.write_attention(&attended.endpoint, &row, before.as_ref(), until).await?;
            if written != Written::Conflict {
                return Ok(());
            }
        }
    }

    /// Begins the end of a subscription, unless somebody has spoken since then. Answers the mark's number.
    pub(super) async fn begin_end(
        &self,
        subscription: &Endpoint,
        before: Option<&Attention>,
        until: Instant,
    ) -> Result<Option<u64>> {
        let row = Row {
            retention: before.and_then(|before| before.row.retention),
            ending: true,
            attended: before.and_then(Attention::attended).map(Timestamp::as_micros),
        };
        Ok(match self.write_attention(subscription, &row, before, until).await? {
            Written::As(number) => Some(number),
            Written::Conflict => None,
        })
    }

    /// Whether a host has said lately that it reads an endpoint, and nobody has begun to drop it since.
    pub(super) async fn is_read(&self, endpoint: &Endpoint, until: Instant) -> Result<bool> {
        let attention = self.attention(endpoint, until).await?.filter(|attention| !attention.has_an_end());
        let Some(attended) = attention.and_then(|attention| attention.attended()) else { return Ok(false) };
        Ok(self.server_now(until).await?.since(attended) < UNATTENDED_AFTER)
    }

    /// Whether somebody may be about to drop the endpoint.
    pub(super) async fn is_ending(&self, endpoint: &Endpoint, until: Instant) -> Result<bool> {
        if matches!(endpoint, Endpoint::Queue(_)) {
            return Ok(false);
        }
        match self.attention(endpoint, until).await? {
            Some(attention) if attention.has_an_end() => {
                Ok(attention.is_ending(self.server_now(until).await?))
            }
            _ => Ok(false),
        }
    }
}
