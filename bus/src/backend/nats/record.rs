//! Records of messages that were tried before: kept beside the messages, since the server's own counts cannot be
//! written to.

use bytes::Bytes;
use tokio::time::Instant;

use super::client::{Ask, Client};
use super::counts::Record;
use super::error::{Lost, unexpected};
use super::jetstream::{EXPECTED, Written};
use super::streams::Home;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::message::Endpoint;

/// The number by which the server is told that there must be no record yet.
pub(super) const NO_RECORD: u64 = 0;

/// A record, and the number under which it is stored.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) record: Record,
    pub(super) revision: u64,
}

fn to_bytes(record: &Record) -> Result<Bytes> {
    let bytes = serde_json::to_vec(record);
    bytes.map(Bytes::from).map_err(|cause| unexpected("a record that cannot be written").caused_by(cause))
}

fn read(data: &[u8]) -> Option<Record> {
    serde_json::from_slice(data).ok()
}

impl Client {
    /// What is known of a message.
    pub(super) async fn recorded(
        &self,
        endpoint: &Endpoint,
        sequence: u64,
        until: Instant,
    ) -> Result<Option<Recorded>> {
        let subject = self.names.record(endpoint, sequence);
        let stored = self.last_of(&self.names.state(), &subject, until).await?;
        Ok(stored
            .and_then(|stored| Some(Recorded { record: read(&stored.data)?, revision: stored.sequence })))
    }

    /// Keeps what is known of a message; if so wanted, only if what was known before has that number.
    pub(super) async fn record(
        &self,
        endpoint: &Endpoint,
        sequence: u64,
        record: &Record,
        expected: Option<u64>,
        until: Instant,
    ) -> Result<Written> {
        let mut ask = Ask::new(self.names.record(endpoint, sequence), to_bytes(record)?);
        if let Some(revision) = expected {
            ask = ask.with(EXPECTED, revision);
        }
        self.write(&Home::State, ask, until, Lost::Again).await
    }

    /// Forgets a message that is gone. What is left of it if that fails is cleared away later.
    pub(super) async fn forget(&self, endpoint: &Endpoint, sequence: u64) {
        let subject = self.names.record(endpoint, sequence);
        if let Err(error) = self.purge(&self.names.state(), &subject, self.deadline()).await {
            tracing::debug!(%endpoint, %error, "the record of a message that is done is left for later");
        }
    }

    /// Forgets all messages that are gone: those before the first of the endpoint's stream.
    pub(super) async fn forget_gone(&self, endpoint: &Endpoint) -> Result<()> {
        let until = self.deadline();
        let Some(info) = self.stream_info(&self.names.stream(endpoint), None, until).await? else {
            return Ok(());
        };
        let all = self.subjects(&self.names.state(), &self.names.records(endpoint), until).await?;
        for sequence in all.iter().filter_map(|subject| subject.rsplit_once('.')?.1.parse().ok()) {
            if sequence < info.state.first_seq {
                self.forget(endpoint, sequence).await;
            }
        }
        Ok(())
    }

    /// The number of the first message that was given back, or whose retry is due. Numbers that are not there any more
    /// may be among them.
    pub(super) async fn first_returned(
        &self,
        endpoint: &Endpoint,
        now: Timestamp,
        until: Instant,
    ) -> Result<Option<u64>> {
        let (state, subjects) = (self.names.state(), self.names.records(endpoint));
        let (mut first, mut from) = (None::<u64>, 1);
        while let Some(stored) = self.next_of(&state, &subjects, from, until).await? {
            from = stored.sequence + 1;
            let number = stored.subject.rsplit_once('.').and_then(|(_, number)| number.parse().ok());
            let is_back =
                |record: &Record| !record.open && record.due.is_none_or(|due| due <= now.as_micros());
            if let Some(number) = number.filter(|_| read(&stored.data).as_ref().is_some_and(is_back)) {
                first = Some(first.map_or(number, |first| first.min(number)));
            }
        }
        Ok(first)
    }

    /// The records of all messages of an endpoint.
    pub(super) async fn all_recorded(&self, endpoint: &Endpoint, until: Instant) -> Result<Vec<Record>> {
        let (state, subjects) = (self.names.state(), self.names.records(endpoint));
        let (mut all, mut from) = (Vec::new(), 1);
        while let Some(stored) = self.next_of(&state, &subjects, from, until).await? {
            from = stored.sequence + 1;
            all.extend(read(&stored.data));
        }
        Ok(all)
    }
}
