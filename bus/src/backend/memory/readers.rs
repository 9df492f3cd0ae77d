//! Who reads which endpoint, what is swept away, and the end of subscriptions.

use std::time::Duration;

use super::store::Handle;
use crate::contract::{Attended, BoxFuture, DroppedSubscription, Readers, Reading};
use crate::error::Result;
use crate::message::Endpoint;

/// How many messages of a subscription one call sweeps away: the store is locked meanwhile.
const SWEPT_AT_ONCE: usize = 10_000;

pub(super) struct MemoryReaders(pub(super) Handle);

impl Readers for MemoryReaders {
    fn attend<'a>(&'a self, attended: &'a [Attended]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let store = self.0.store()?;
            let now = store.now();
            let mut messages = store.messages.lock();
            for one in attended {
                if let Some(queue) = messages.queues.get_mut(&one.endpoint) {
                    queue.attended = Some(now.wall);
                    queue.retention = one.retention;
                }
            }
            Ok(())
        })
    }

    fn readings(&self) -> BoxFuture<'_, Result<Vec<Reading>>> {
        Box::pin(async move {
            let store = self.0.store()?;
            let now = store.now();
            let messages = store.messages.lock();
            let reading = |(endpoint, queue): (&Endpoint, &super::queue::Queue)| {
                let attended = queue.attended.map(|at| now.wall.since(at));
                Reading::new(endpoint.clone(), queue.oldest(now), attended, queue.retention)
            };
            Ok(messages.queues.iter().map(reading).collect())
        })
    }

    fn oldest<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<Duration>>> {
        Box::pin(async move {
            let store = self.0.store()?;
            let now = store.now();
            let messages = store.messages.lock();
            Ok(messages.queues.get(endpoint).and_then(|queue| queue.oldest(now)))
        })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<Vec<(Endpoint, u64)>>> {
        Box::pin(async move {
            let store = self.0.store()?;
            let now = store.now();
            let mut messages = store.messages.lock();
            let swept = messages
                .queues
                .iter_mut()
                .map(|(endpoint, queue)| (endpoint.clone(), queue.sweep(SWEPT_AT_ONCE, now)));
            Ok(swept.filter(|(_, count)| *count > 0).collect())
        })
    }

    fn drop_subscription<'a>(
        &'a self,
        subscription: &'a Endpoint,
        unattended: Duration,
    ) -> BoxFuture<'a, Result<DroppedSubscription>> {
        Box::pin(async move {
            let store = self.0.store()?;
            let now = store.now();
            let mut messages = store.messages.lock();
            let found = messages.queues.get(subscription);
            let Some(queue) = found.filter(|_| matches!(subscription, Endpoint::Subscription { .. })) else {
                return Ok(DroppedSubscription::NotFound);
            };
            if let Some(ago) = queue.attended.map(|at| now.wall.since(at)).filter(|ago| *ago < unattended) {
                return Ok(DroppedSubscription::Attended(ago));
            }
            if let Some(queue) = messages.queues.remove(subscription) {
                // Whoever still waits there finds out that it is gone.
                queue.changed.notify_waiters();
            }
            Ok(DroppedSubscription::Done)
        })
    }
}
