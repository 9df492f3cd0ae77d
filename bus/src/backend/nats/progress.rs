//! How far the consumers of a subscription have come: up to which number somebody may have claimed something. The server
//! tells that of a consumer as long as it is there; of those that were before it, it is kept here. What lies beyond has
//! certainly never been claimed.

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::client::{Ask, Client};
use super::durable::{self, Info};
use super::error::{Lost, unexpected};
use super::jetstream::{EXPECTED, StreamInfo, Written};
use super::streams::Home;
use crate::error::Result;
use crate::message::Endpoint;

/// What is kept of a stream's former consumers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    /// Which stream: when it was made. Numbers begin anew where a stream is made anew.
    of: String,
    /// Up to which number they may have delivered something.
    upto: u64,
    /// Whether there is a consumer of which this was not yet noted.
    open: bool,
}

impl Client {
    async fn progress(
        &self,
        endpoint: &Endpoint,
        stream: &StreamInfo,
        until: Instant,
    ) -> Result<(Option<Progress>, u64)> {
        let subject = self.names.progress(endpoint);
        let Some(stored) = self.last_of(&self.names.state(), &subject, until).await? else {
            return Ok((None, 0));
        };
        let progress: Option<Progress> = serde_json::from_slice(&stored.data).ok();
        Ok((progress.filter(|progress| progress.of == stream.created), stored.sequence))
    }

    /// Keeps what is made of what was known before.
    async fn change_progress(
        &self,
        endpoint: &Endpoint,
        stream: &StreamInfo,
        change: impl Fn(Option<&Progress>) -> (u64, bool),
        until: Instant,
    ) -> Result<()> {
        loop {
            let (before, revision) = self.progress(endpoint, stream, until).await?;
            let (upto, open) = change(before.as_ref());
            let progress = Progress { of: stream.created.clone(), upto, open };
            if before.as_ref() == Some(&progress) {
                return Ok(());
            }
            let bytes = serde_json::to_vec(&progress)
                .map_err(|cause| unexpected("a record that cannot be written").caused_by(cause))?;
            let ask = Ask::new(self.names.progress(endpoint), bytes).with(EXPECTED, revision);
            if self.write(&Home::State, ask, until, Lost::Again).await? != Written::Conflict {
                return Ok(());
            }
        }
    }

    /// A consumer is about to be made. If there was one whose end nobody has noted, such as an administrator's deed, it may
    /// have delivered everything.
    pub(super) async fn note_new_consumer(
        &self,
        endpoint: &Endpoint,
        stream: &StreamInfo,
        until: Instant,
    ) -> Result<()> {
        if matches!(endpoint, Endpoint::Queue(_)) {
            return Ok(());
        }
        let change = |before: Option<&Progress>| match before {
            None => (0, true),
            Some(Progress { open: true, .. }) => (stream.state.last_seq, true),
            Some(before) => (before.upto, true),
        };
        self.change_progress(endpoint, stream, change, until).await
    }

    /// A consumer that has come so far is about to be deleted.
    pub(super) async fn note_last_delivery(
        &self,
        endpoint: &Endpoint,
        delivered: u64,
        until: Instant,
    ) -> Result<()> {
        let Some(stream) = self.stream_info(&self.names.stream(endpoint), None, until).await? else {
            return Ok(());
        };
        let change =
            |before: Option<&Progress>| (before.map_or(0, |before| before.upto).max(delivered), false);
        self.change_progress(endpoint, &stream, change, until).await
    }

    /// How far the consumers of a subscription have come.
    pub(super) async fn reached(
        &self,
        endpoint: &Endpoint,
        stream: &StreamInfo,
        until: Instant,
    ) -> Result<Reached> {
        // In this order: of a consumer that is deleted in between it has been noted.
        let consumer = durable::current(self, endpoint, until).await?;
        let (former, _) = self.progress(endpoint, stream, until).await?;
        let mut claimed = consumer.as_ref().map_or(0, Info::delivered);
        if let Some(former) = former {
            claimed = claimed.max(former.upto);
            if consumer.is_none() && former.open {
                // Somebody else has deleted it, and nobody knows how far it had come.
                claimed = stream.state.last_seq;
                self.note_last_delivery(endpoint, claimed, until).await?;
            }
        }
        Ok(Reached { claimed, consumer })
    }
}

/// How far the consumers of a subscription have come, and which one there is now.
pub(super) struct Reached {
    /// Up to which number something may have been claimed.
    pub(super) claimed: u64,
    consumer: Option<Info>,
}

impl Reached {
    /// How many messages may have been delivered since then, at the most.
    pub(super) fn deliveries_since(&self, then: &Reached) -> u64 {
        match (&self.consumer, &then.consumer) {
            (None, None) => 0,
            (Some(now), Some(then)) => now.deliveries_since(then).unwrap_or(u64::MAX),
            _ => u64::MAX,
        }
    }
}
