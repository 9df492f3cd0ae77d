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
/// How many records are asked for together.
const PAGE: usize = 1000;

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

    /// Keeps what is known of a message, whatever was known before.
    pub(super) async fn record(
        &self,
        endpoint: &Endpoint,
        sequence: u64,
        record: &Record,
        until: Instant,
    ) -> Result<Written> {
        let ask = Ask::new(self.names.record(endpoint, sequence), to_bytes(record)?);
        self.write(&Home::State, ask, until, Lost::Again).await
    }

    /// Keeps what is known of a message over what was known before under that number, over what is said of a message that
    /// had its own number in a former stream, and over what `may_go`. Answers the record's number; `None` if something else
    /// stands there by now.
    pub(super) async fn record_over(
        &self,
        endpoint: &Endpoint,
        sequence: u64,
        (record, before): (&Record, u64),
        may_go: impl Fn(&Record) -> bool,
        until: Instant,
    ) -> Result<Option<u64>> {
        let subject = self.names.record(endpoint, sequence);
        let mut expected = before;
        for _ in 0..2 {
            let ask = Ask::new(subject.as_str(), to_bytes(record)?).with(EXPECTED, expected);
            if let Written::As(revision) = self.write(&Home::State, ask, until, Lost::Again).await? {
                return Ok(Some(revision));
            }
            let Some(found) = self.recorded(endpoint, sequence, until).await? else { break };
            // Our first try, whose answer was lost.
            if (Record { due: record.due, ..found.record.clone() }) == *record {
                return Ok(Some(found.revision));
            }
            if found.record.of == record.of && !may_go(&found.record) {
                break;
            }
            expected = found.revision;
        }
        Ok(None)
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
        for sequence in all.iter().filter_map(|subject| number_of(subject)) {
            if sequence < info.state.first_seq {
                self.forget(endpoint, sequence).await;
            }
        }
        Ok(())
    }

    /// The number of the first message that was given back, or whose retry is due. Numbers that are not there any more
    /// may be among them.
    pub(super) async fn first_returned(&self, endpoint: &Endpoint, now: Timestamp) -> Result<Option<u64>> {
        let is_back = |record: &Record| !record.open && record.due.is_none_or(|due| due <= now.as_micros());
        let records = self.all_recorded(endpoint).await?;
        Ok(records.iter().filter(|(_, record)| is_back(record)).map(|(number, _)| *number).min())
    }

    /// The records of all messages of an endpoint, with the messages' numbers. There may be many thousands of them: each
    /// page has a deadline of its own.
    pub(super) async fn all_recorded(&self, endpoint: &Endpoint) -> Result<Vec<(u64, Record)>> {
        let (state, subjects) = (self.names.state(), self.names.records(endpoint));
        let subjects = self.subjects(&state, &subjects, self.deadline()).await?;
        let mut all = Vec::with_capacity(subjects.len());
        for page in subjects.chunks(PAGE) {
            let stored = self.last_of_each(&state, page, self.deadline()).await?;
            all.extend(
                stored.iter().filter_map(|stored| Some((number_of(&stored.subject)?, read(&stored.data)?))),
            );
        }
        Ok(all)
    }
}

/// The number of the message whose record has that subject.
fn number_of(subject: &str) -> Option<u64> {
    subject.rsplit_once('.')?.1.parse().ok()
}
