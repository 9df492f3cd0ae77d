//! Views for people.
//!
//! Azure shows the first 32 messages of a queue, and takes one out only for whoever has claimed it: to find a certain dead
//! letter, those before it are claimed for a while too, and given back.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::time::Instant;

use super::message::{LARGEST_INLINE, Stored};
use super::name::dead_letters_of;
use super::send::Outbox;
use super::service::{MOST_AT_ONCE, Service, Taken, may_be_repeated};
use crate::clock::Timestamp;
use crate::contract::{BoxFuture, DeadLetter, Depth, Dropped, Inspect, PutBack};
use crate::error::Result;
use crate::message::{Endpoint, MessageId};

/// For how long letters are out of sight that are looked through.
const WHILE_SEARCHING: Duration = Duration::from_secs(120);
/// How many of them are given back at the same time.
const AT_ONCE: usize = 16;

pub(super) struct QueueInspect(pub(super) Arc<Outbox>);

/// What is done with a dead letter that was looked for.
#[derive(Clone, Copy)]
enum Fate {
    PutBack,
    Drop,
}

impl QueueInspect {
    fn service(&self) -> &Service {
        &self.0.service
    }

    async fn count(&self, queue: &str) -> Result<u64> {
        match self.service().count(queue).await {
            Err(failure) if failure.is_missing() => Ok(0),
            answer => answer.map_err(|failure| self.service().describe(failure)),
        }
    }

    async fn depth_of(&self, endpoint: &Endpoint) -> Result<Depth> {
        let queue = self.service().prefix.queue_of(endpoint)?;
        let (living, dead) = (self.count(&queue).await?, self.count(&dead_letters_of(&queue)).await?);
        Ok(Depth::new(living, 0, 0, dead))
    }

    /// The dead letters that Azure shows, oldest first, each once.
    async fn letters(&self, endpoint: &Endpoint) -> Result<Vec<(Stored, DeadLetter)>> {
        let queue = dead_letters_of(&self.service().prefix.queue_of(endpoint)?);
        let seen = match self.service().look(&queue, MOST_AT_ONCE).await {
            Err(failure) if failure.is_missing() => return Ok(Vec::new()),
            seen => seen.map_err(|failure| self.service().describe(failure))?,
        };
        let mut known = HashSet::new();
        let mut letters: Vec<_> = seen
            .into_iter()
            .map(|taken| Stored::read(&taken.text, &taken.id))
            .filter(|stored| known.insert(stored.id))
            .map(|stored| (stored.clone(), letter(stored, endpoint)))
            .collect();
        letters.sort_by_key(|(stored, letter)| (letter.dead_since, stored.id));
        Ok(letters)
    }

    async fn page(
        &self,
        endpoint: &Endpoint,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        let letters = self.letters(endpoint).await?;
        let from = match after {
            None => 0,
            // What is not shown any more has nothing after it, so that nobody pages for ever.
            Some(after) => letters
                .iter()
                .position(|(stored, _)| stored.id == after)
                .map_or(letters.len(), |position| position + 1),
        };
        let mut page = Vec::new();
        for (stored, mut letter) in letters.into_iter().skip(from).take(limit) {
            if let Some(blob) = stored.blob() {
                let content = self.service().fetch(blob).await?;
                if let Some(whole) = content.and_then(|content| stored.clone().with_content_of(content)) {
                    letter.envelope = whole.envelope();
                }
            }
            page.push(letter);
        }
        Ok(page)
    }

    /// Looks for dead letters, and does with each what is to be done; answers which were found.
    async fn find(&self, endpoint: &Endpoint, ids: &[MessageId], fate: Fate) -> Result<HashSet<MessageId>> {
        let queue = self.service().prefix.queue_of(endpoint)?;
        let dead = dead_letters_of(&queue);
        let mut others = Vec::new();
        let found = self.search(&queue, &dead, ids, fate, &mut others).await;
        let giving_back: Vec<_> = others.iter().map(|taken| self.give_back(&dead, taken)).collect();
        stream::iter(giving_back).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
        found
    }

    async fn search(
        &self,
        queue: &str,
        dead: &str,
        ids: &[MessageId],
        fate: Fate,
        others: &mut Vec<Taken>,
    ) -> Result<HashSet<MessageId>> {
        let wanted: HashSet<_> = ids.iter().copied().collect();
        let (mut found, mut seen) = (HashSet::new(), HashSet::new());
        while found.len() < wanted.len() {
            let ours_until = Instant::now() + WHILE_SEARCHING;
            let taken = match self.service().take(dead, MOST_AT_ONCE, WHILE_SEARCHING).await {
                Err(failure) if failure.is_missing() => break,
                taken => taken.map_err(|failure| self.service().describe(failure))?,
            };
            // All have been seen once those come back that were seen first.
            let is_new = taken.iter().any(|taken| seen.insert(taken.id.clone()));
            for taken in taken {
                let stored = Stored::read(&taken.text, &taken.id);
                match wanted.contains(&stored.id) {
                    true => {
                        let id = stored.id;
                        // The second of a letter that was written twice only has to go.
                        let fate = if found.contains(&id) { Fate::Drop } else { fate };
                        match self.deal_with(queue, (dead, &taken, ours_until), stored, fate).await {
                            Ok(true) => drop(found.insert(id)),
                            Ok(false) => {}
                            Err(error) => {
                                others.push(taken);
                                return Err(error);
                            }
                        }
                    }
                    false => others.push(taken),
                }
            }
            if !is_new {
                break;
            }
        }
        Ok(found)
    }

    /// Puts a letter back, or drops it. `false` if somebody else has it by now, and nothing was done with it.
    async fn deal_with(
        &self,
        queue: &str,
        (dead, taken, ours_until): (&str, &Taken, Instant),
        stored: Stored,
        fate: Fate,
    ) -> Result<bool> {
        let blob = stored.blob().map(str::to_owned);
        if let Fate::PutBack = fate {
            // There first, and only then out of here: so it is never lost, and at worst in both.
            self.copy_to(queue, stored.put_back()).await?;
        }
        let called = self.service().delete(dead, (&taken.id, &taken.receipt)).await;
        let is_gone = match called.answer {
            Ok(()) => true,
            // An earlier try has deleted it: nobody else can have taken it yet.
            Err(failure) if failure.is_stale_claim() => called.perhaps_before && Instant::now() < ours_until,
            Err(failure) => return Err(self.service().describe(failure)),
        };
        if is_gone {
            self.service().drop_blob(blob.as_deref()).await;
        }
        Ok(is_gone || matches!(fate, Fate::PutBack))
    }

    /// Puts a copy of a dead letter into the queue.
    async fn copy_to(&self, queue: &str, back: Stored) -> Result<()> {
        let service = self.service();
        let letter = service.fit_copy(back, LARGEST_INLINE).await?;
        if let Err(failure) = service.put(queue, &letter.text, Duration::ZERO).await {
            if failure.is_certain() {
                service.drop_blob(letter.blob.as_deref()).await;
            }
            return Err(service.describe(failure));
        }
        self.0.hints.tell(&queue.to_owned());
        Ok(())
    }

    /// Makes a letter visible again. If that fails, it is by itself after a while.
    async fn give_back(&self, dead: &str, taken: &Taken) {
        let place = (taken.id.as_str(), taken.receipt.as_str());
        let called = self.service().update(dead, place, Duration::ZERO, None, may_be_repeated()).await;
        if let Err(failure) = called.answer {
            let error = self.service().describe(failure);
            tracing::warn!(target: "bus::azure_storage", queue = dead, %error, "a dead letter that was looked at stays out of sight for two minutes");
        }
    }
}

/// As people see it.
fn letter(stored: Stored, endpoint: &Endpoint) -> DeadLetter {
    let envelope = stored.envelope();
    let (reason, error, since, deliveries) = match stored.death {
        Some(death) => (death.reason, death.error, Timestamp::from_micros(death.since), death.deliveries),
        None => ("it was put there by somebody else".to_owned(), None, stored.sent_at, 0),
    };
    DeadLetter::new(envelope, endpoint.clone(), reason, error, since, deliveries)
}

impl Inspect for QueueInspect {
    fn endpoints(&self) -> BoxFuture<'_, Result<Vec<Endpoint>>> {
        Box::pin(async move {
            let prefix = &self.service().prefix;
            let listed = self.service().list(&prefix.beginning()).await;
            let listed = listed.map_err(|failure| self.service().describe(failure))?;
            let mut endpoints: Vec<_> = listed.iter().filter_map(|queue| prefix.endpoint_of(queue)).collect();
            endpoints.sort();
            Ok(endpoints)
        })
    }

    fn depth<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Depth>> {
        Box::pin(self.depth_of(endpoint))
    }

    fn dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        after: Option<MessageId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>>> {
        Box::pin(self.page(endpoint, after, limit))
    }

    fn put_back<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, PutBack)>>> {
        Box::pin(async move {
            let found = self.find(endpoint, ids, Fate::PutBack).await?;
            let answer = |id| if found.contains(id) { PutBack::Done } else { PutBack::NotFound };
            Ok(ids.iter().map(|id| (*id, answer(id))).collect())
        })
    }

    fn drop_dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, Dropped)>>> {
        Box::pin(async move {
            let found = self.find(endpoint, ids, Fate::Drop).await?;
            let answer = |id| if found.contains(id) { Dropped::Done } else { Dropped::NotFound };
            Ok(ids.iter().map(|id| (*id, answer(id))).collect())
        })
    }
}
