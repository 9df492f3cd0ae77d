//! Whom an event is stored for: the subscriptions of its topic that there are. What this process has seen of a topic it
//! remembers. Where a subscription is missing that was there before, either it was dropped, or its stream was deleted under
//! hosts that read it, which is made again; or the whole store has been emptied, and nobody knows yet who reads it: then
//! events are refused for a moment.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::client::Client;
use super::error::unexpected;
use super::jetstream::{StreamInfo, read_time};
use super::streams::Home;
use crate::beginning::Beginning;
use crate::contract::READ_AGAIN_WITHIN;
use crate::error::Result;
use crate::message::{Endpoint, Name};

/// What is known of those who read.
#[derive(Debug, Default)]
pub(super) struct Recipients {
    /// When the stream of records was made: it is there as long as the store is.
    beginning: Beginning,
    /// Each topic's subscriptions, as they were found last, and when.
    topics: Mutex<BTreeMap<Name, (Instant, Vec<Endpoint>)>>,
}

impl Client {
    /// The subscriptions that an event of this topic is stored for.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) while it is not known again who reads it.
    pub(super) async fn recipients(&self, topic: &Name, until: Instant) -> Result<Vec<Endpoint>> {
        let looked = Instant::now();
        let mut found = self.subscriptions(topic, until).await?;
        let before = self.recipients.topics.lock().get(topic).cloned();
        // What was seen long ago does not tell who has come to read since, and may be missing now.
        let is_known = before
            .as_ref()
            .is_some_and(|(seen, known)| !known.is_empty() && seen.elapsed() < READ_AGAIN_WITHIN);
        let is_missing = |one: &Endpoint| !found.contains(one);
        let known = before.iter().flat_map(|(_, known)| known);
        let missing: Vec<_> = known.filter(|one| is_missing(one)).cloned().collect();
        if !is_known || !missing.is_empty() {
            self.refuse_if_emptied(until).await?;
        }
        for subscription in missing {
            if self.make_again_if_read(&subscription, until).await? {
                found.push(subscription);
            }
        }
        self.recipients.topics.lock().insert(topic.clone(), (looked, found.clone()));
        Ok(found)
    }

    /// The subscriptions of a topic that there are now.
    async fn subscriptions(&self, topic: &Name, until: Instant) -> Result<Vec<Endpoint>> {
        let streams = self.streams(&self.names.topic_subjects(topic), until).await?;
        let is_its =
            |endpoint: &Endpoint| matches!(endpoint, Endpoint::Subscription { topic: of, .. } if of == topic);
        Ok(streams.iter().filter_map(|stream| self.names.endpoint(stream)).filter(is_its).collect())
    }

    /// Makes a subscription that is missing again, if somebody reads it. Whether it is there then.
    pub(super) async fn make_again_if_read(&self, subscription: &Endpoint, until: Instant) -> Result<bool> {
        if !self.is_read(subscription, until).await? {
            return Ok(false);
        }
        self.prepare(subscription, until).await?;
        tracing::warn!(%subscription, "the subscription was gone from the server though it is read, and has been made again");
        Ok(true)
    }

    /// Takes note of the store that is there now: that is the one we know.
    pub(super) async fn note_beginning(&self, until: Instant) -> Result<()> {
        let info = self.records_info(until).await?;
        self.recipients.beginning.note(info.created);
        Ok(())
    }

    /// Refuses if the store has been emptied so lately that those who read it may not have made their subscriptions again.
    pub(super) async fn refuse_if_emptied(&self, until: Instant) -> Result<()> {
        let StreamInfo { created, .. } = self.records_info(until).await?;
        let beginning = &self.recipients.beginning;
        if beginning.is_another(&created) {
            let since = read_time(&created).ok_or_else(|| unexpected("a time that is none"))?;
            if self.server_now(until).await?.since(since) < READ_AGAIN_WITHIN {
                return Err(beginning.refusal(created).in_backend("nats"));
            }
        }
        beginning.note(created);
        Ok(())
    }

    /// The stream of records, made where it is missing.
    async fn records_info(&self, until: Instant) -> Result<StreamInfo> {
        loop {
            if let Some(info) = self.stream_info(&self.names.state(), None, until).await? {
                return Ok(info);
            }
            self.furnish_again(&Home::State, until).await?;
        }
    }
}
