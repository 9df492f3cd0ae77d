//! Who reads which endpoint, what is swept away, and the end of subscriptions.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::client::Client;
use super::durable;
use super::error::unexpected;
use super::jetstream::Stored;
use super::sweep::sent_at;
use crate::clock::Timestamp;
use crate::contract::{Attended, BoxFuture, DroppedSubscription, Readers, Reading, UNATTENDED_AFTER};
use crate::error::Result;
use crate::message::Endpoint;

pub(super) struct NatsReaders(pub(super) Arc<Client>);

impl NatsReaders {
    async fn read(&self, endpoint: Endpoint) -> Result<Reading> {
        let until = self.0.deadline();
        let attention = self.0.attention(&endpoint, until).await?;
        let now = self.0.server_now(until).await?;
        let attended = attention.as_ref().and_then(|known| known.attended()).map(|at| now.since(at));
        let oldest = self.first_available(&endpoint, attended, now, until).await?;
        let retention = attention.and_then(|known| known.retention());
        Ok(Reading::new(endpoint, oldest.map(|stored| now.since(sent_at(&stored))), attended, retention))
    }

    /// What was given back, or is due again, comes before what was never claimed. Claims are with the server's consumer;
    /// those of hosts that have long been silent have lapsed.
    async fn first_available(
        &self,
        endpoint: &Endpoint,
        attended: Option<Duration>,
        now: Timestamp,
        until: Instant,
    ) -> Result<Option<Stored>> {
        let (client, stream) = (&self.0, self.0.names.stream(endpoint));
        let Some(info) = client.stream_info(&stream, None, until).await? else { return Ok(None) };
        if info.state.messages == 0 {
            return Ok(None);
        }
        let consumer = durable::current(client, endpoint, until).await?;
        let has_lapsed =
            |info: &durable::Info| attended.is_some_and(|ago| ago > UNATTENDED_AFTER + info.ack_wait());
        let subject = client.names.subject(endpoint);
        let Some(consumer) = consumer.filter(|info| !has_lapsed(info)) else {
            return client.next_of(&stream, &subject, 1, until).await;
        };
        if let Some(number) = client.first_returned(endpoint, now).await?
            && number <= consumer.delivered()
            && let Some(stored) = client.next_of(&stream, &subject, number, client.deadline()).await?
            && stored.sequence == number
        {
            return Ok(Some(stored));
        }
        client.next_of(&stream, &subject, consumer.delivered() + 1, client.deadline()).await
    }
}

impl Readers for NatsReaders {
    fn attend<'a>(&'a self, attended: &'a [Attended]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let there = self.0.endpoints(self.0.deadline()).await?;
            for one in attended.iter().filter(|one| there.binary_search(&one.endpoint).is_ok()) {
                self.0.attend(one, self.0.deadline()).await?;
            }
            Ok(())
        })
    }

    fn readings(&self) -> BoxFuture<'_, Result<Vec<Reading>>> {
        Box::pin(async move {
            let mut readings = Vec::new();
            for endpoint in self.0.endpoints(self.0.deadline()).await? {
                readings.push(self.read(endpoint).await?);
            }
            Ok(readings)
        })
    }

    fn oldest<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<Duration>>> {
        Box::pin(async move { Ok(self.read(endpoint.clone()).await?.oldest) })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<Vec<(Endpoint, u64)>>> {
        Box::pin(async move {
            // A task of its own: a host that stops midway still stores again what it has removed too much.
            let client = Arc::clone(&self.0);
            let sweeping = self.0.tasks.spawn(async move { client.sweep().await });
            sweeping
                .await
                .unwrap_or_else(|cause| Err(unexpected("a sweep that ended suddenly").caused_by(cause)))
        })
    }

    fn drop_subscription<'a>(
        &'a self,
        subscription: &'a Endpoint,
        unattended: Duration,
    ) -> BoxFuture<'a, Result<DroppedSubscription>> {
        Box::pin(self.0.end(subscription, unattended))
    }
}
