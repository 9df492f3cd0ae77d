//! Who reads which endpoint, and the end of subscriptions: kept in the metadata of each queue, which Azure gives with the
//! list of the queues, and which go with their queue.
//!
//! Azure changes no metadata, and deletes no queue, under a condition: what a host says between the look at it and the
//! deletion is not heard. The host finds its queue missing then, and makes it again.

use std::sync::Arc;
use std::time::Duration;

use super::name::dead_letters_of;
use super::send::{Outbox, closed};
use super::service::{Listed, MOST_AT_ONCE, Metadata, Service};
use super::sweep::{is_due, sent_at};
use crate::clock::{Clock, Timestamp};
use crate::contract::{ATTENDED_EVERY, Attended, BoxFuture, DroppedSubscription, Readers, Reading};
use crate::error::Result;
use crate::message::Endpoint;

/// When a host last said that it reads the queue, by the service's clock, in microseconds since 1970.
const READ: &str = "busread";
/// For how long it keeps what waits there, in microseconds; not there if for as long as it takes.
const RETENTION: &str = "busretention";

pub(super) struct QueueReaders {
    pub(super) outbox: Arc<Outbox>,
    pub(super) clock: Clock,
}

/// When the queue was last read.
fn attended(metadata: &Metadata) -> Option<Timestamp> {
    metadata.get(READ)?.parse().ok().map(Timestamp::from_micros)
}

fn retention(metadata: &Metadata) -> Option<Duration> {
    metadata.get(RETENTION)?.parse().ok().map(Duration::from_micros)
}

/// The same with what is to be said, unless that was said a moment ago, be it by another host.
fn with_attention(metadata: &Metadata, said: &Attended, now: Timestamp) -> Option<Metadata> {
    let is_fresh = attended(metadata).is_some_and(|at| now.since(at) < ATTENDED_EVERY / 3);
    if is_fresh && retention(metadata) == said.retention {
        return None;
    }
    let mut metadata = metadata.clone();
    metadata.insert(READ.to_owned(), now.as_micros().to_string());
    match said.retention {
        Some(time) => metadata.insert(RETENTION.to_owned(), time.as_micros().to_string()),
        None => metadata.remove(RETENTION),
    };
    Some(metadata)
}

impl QueueReaders {
    fn service(&self) -> &Service {
        &self.outbox.service
    }

    /// The queues of endpoints.
    async fn queues(&self) -> Result<Vec<(Endpoint, Listed)>> {
        if self.outbox.closed.is_cancelled() {
            return Err(closed());
        }
        let service = self.service();
        let listed = service.list_all(&service.prefix.beginning()).await;
        let listed = listed.map_err(|failure| service.describe(failure))?;
        let named = |queue: Listed| Some((service.prefix.endpoint_of(&queue.name)?, queue));
        let mut queues: Vec<_> = listed.into_iter().filter_map(named).collect();
        queues.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(queues)
    }

    async fn say(&self, said: &[Attended]) -> Result<()> {
        let service = self.service();
        for (endpoint, queue) in self.queues().await? {
            let Some(said) = said.iter().find(|said| said.endpoint == endpoint) else { continue };
            let Some(metadata) = with_attention(&queue.metadata, said, service.clock.now()) else { continue };
            match service.set_metadata(&queue.name, &metadata).await {
                // Somebody has deleted it just now.
                Err(failure) if failure.is_missing_queue() || failure.is_being_deleted() => {}
                answer => answer.map_err(|failure| service.describe(failure))?,
            }
        }
        Ok(())
    }

    async fn read(&self, endpoint: Endpoint, queue: Listed) -> Result<Reading> {
        let oldest = self.first_sent(&queue.name).await?;
        let now = self.service().clock.now();
        let attended = attended(&queue.metadata).map(|at| now.since(at));
        Ok(Reading::new(endpoint, oldest.map(|at| now.since(at)), attended, retention(&queue.metadata)))
    }

    /// When the first message was sent that can be taken: Azure shows no others. Those that wait for longer than Azure can
    /// hide them are passed over, as far as they are shown.
    async fn first_sent(&self, queue: &str) -> Result<Option<Timestamp>> {
        for count in [1, MOST_AT_ONCE] {
            let seen = match self.service().look(queue, count).await {
                Err(failure) if failure.is_missing() => return Ok(None),
                seen => seen.map_err(|failure| self.service().describe(failure))?,
            };
            let now = self.service().clock.now();
            let first = seen.iter().find(|taken| is_due(taken, now));
            if first.is_some() || seen.len() < count {
                return Ok(first.map(sent_at));
            }
        }
        Ok(None)
    }

    async fn sweep_all(&self) -> Result<Vec<(Endpoint, u64)>> {
        let mut swept = Vec::new();
        for (endpoint, queue) in self.queues().await? {
            let Some(retention) = retention(&queue.metadata) else { continue };
            if matches!(endpoint, Endpoint::Queue(_)) {
                continue;
            }
            let count = self.sweep_queue(queue.name, retention).await?;
            if count > 0 {
                swept.push((endpoint, count));
            }
        }
        Ok(swept)
    }

    /// Deletes the queue, and then that of the dead letters. Whoever dies in between has done so when it is done again.
    async fn end(&self, subscription: &Endpoint, unattended: Duration) -> Result<DroppedSubscription> {
        if self.outbox.closed.is_cancelled() {
            return Err(closed());
        }
        if matches!(subscription, Endpoint::Queue(_)) {
            return Ok(DroppedSubscription::NotFound);
        }
        let service = self.service();
        let queue = service.prefix.queue_of(subscription)?;
        let metadata = match service.metadata(&queue).await {
            Err(failure) if failure.is_missing() || failure.is_being_deleted() => None,
            metadata => Some(metadata.map_err(|failure| service.describe(failure))?),
        };
        if let Some(at) = metadata.as_ref().and_then(attended) {
            let ago = service.clock.now().since(at);
            if ago < unattended {
                return Ok(DroppedSubscription::Attended(ago));
            }
        }
        let mut was_there = metadata.is_some();
        for queue in [dead_letters_of(&queue), queue].iter().rev() {
            was_there |= service.delete_queue(queue).await.map_err(|failure| service.describe(failure))?;
        }
        Ok(if was_there { DroppedSubscription::Done } else { DroppedSubscription::NotFound })
    }
}

impl Readers for QueueReaders {
    fn attend<'a>(&'a self, attended: &'a [Attended]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.say(attended))
    }

    fn readings(&self) -> BoxFuture<'_, Result<Vec<Reading>>> {
        Box::pin(async move {
            let mut readings = Vec::new();
            for (endpoint, queue) in self.queues().await? {
                readings.push(self.read(endpoint, queue).await?);
            }
            Ok(readings)
        })
    }

    fn oldest<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<Duration>>> {
        Box::pin(async move {
            let queue = self.service().prefix.queue_of(endpoint)?;
            let sent = self.first_sent(&queue).await?;
            let now = self.service().clock.now();
            Ok(sent.map(|at| now.since(at)))
        })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<Vec<(Endpoint, u64)>>> {
        Box::pin(self.sweep_all())
    }

    fn drop_subscription<'a>(
        &'a self,
        subscription: &'a Endpoint,
        unattended: Duration,
    ) -> BoxFuture<'a, Result<DroppedSubscription>> {
        Box::pin(self.end(subscription, unattended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    /// What others keep beside the queue stays; what was said a moment ago is not said again.
    #[test]
    fn attention_is_added_to_what_is_there() {
        let said = Attended::new(Endpoint::parse("placed/mail").unwrap());
        let hour = Duration::from_secs(3600);
        let theirs: Metadata = [("team".to_owned(), "shop".to_owned())].into();
        let first = with_attention(&theirs, &said.clone().retention(Some(hour)), at(100)).unwrap();
        assert_eq!((attended(&first), retention(&first)), (Some(at(100)), Some(hour)));
        assert_eq!(first.get("team").map(String::as_str), Some("shop"));
        assert_eq!(with_attention(&first, &said.clone().retention(Some(hour)), at(119)), None);
        let later = with_attention(&first, &said.clone().retention(Some(hour)), at(120)).unwrap();
        assert_eq!(attended(&later), Some(at(120)));
        let changed = with_attention(&first, &said, at(101)).unwrap();
        assert_eq!((attended(&changed), retention(&changed)), (Some(at(101)), None));
    }
}
