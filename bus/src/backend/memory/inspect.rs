//! Views for people.

use super::store::Handle;
use crate::contract::{BoxFuture, DeadLetter, Depth, Dropped, Inspect, PutBack};
use crate::error::Result;
use crate::message::{Endpoint, MessageId};

pub(super) struct MemoryInspect(pub(super) Handle);

impl MemoryInspect {
    fn put_back_now(&self, endpoint: &Endpoint, ids: &[MessageId]) -> Result<Vec<(MessageId, PutBack)>> {
        let store = self.0.store()?;
        let now = store.now();
        let mut messages = store.messages.lock();
        let taken = messages.queue(endpoint)?.dead.take_out(ids);
        let mut answers = Vec::with_capacity(taken.len());
        for (id, envelopes) in taken {
            answers.push((id, if envelopes.is_empty() { PutBack::NotFound } else { PutBack::Done }));
            for envelope in envelopes {
                let row = messages.next_row();
                messages.queue(endpoint)?.add_again(row, envelope, now);
            }
        }
        Ok(answers)
    }
}

impl Inspect for MemoryInspect {
    fn endpoints(&self) -> BoxFuture<'_, Result<Vec<Endpoint>>> {
        Box::pin(async move { Ok(self.0.store()?.messages.lock().queues.keys().cloned().collect()) })
    }

    fn depth<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Depth>> {
        Box::pin(async move {
            let store = self.0.store()?;
            let now = store.now();
            Ok(store.messages.lock().queue(endpoint)?.depth(now))
        })
    }

    fn dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        after: Option<MessageId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>>> {
        Box::pin(async move {
            let mut messages = self.0.store()?.messages.lock();
            Ok(messages.queue(endpoint)?.dead.page(endpoint, after, limit))
        })
    }

    fn put_back<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, PutBack)>>> {
        Box::pin(async move { self.put_back_now(endpoint, ids) })
    }

    fn drop_dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, Dropped)>>> {
        Box::pin(async move {
            let taken = self.0.store()?.messages.lock().queue(endpoint)?.dead.take_out(ids);
            let dropped = taken.into_iter().map(|(id, envelopes)| {
                (id, if envelopes.is_empty() { Dropped::NotFound } else { Dropped::Done })
            });
            Ok(dropped.collect())
        })
    }
}
