//! The end of a subscription: first marked, under the condition that nobody attends to it; then its stream is deleted, with
//! the consumer; then what else was its own. Whoever dies over it leaves the mark, by which it is found and ended another
//! time.
//!
//! A host may make the subscription again as soon as its stream is gone. What belongs to the new one is told from what
//! belonged to the old one by its number: nothing is removed that was stored after the old stream's deletion was asked for.

use std::time::Duration;

use tokio::time::Instant;

use super::attention::{Attention, ENDING};
use super::client::Client;
use super::error::error;
use super::streams::Home;
use crate::contract::DroppedSubscription;
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;

impl Client {
    /// Drops a subscription, unless a host has attended to it within that time.
    pub(super) async fn end(
        &self,
        subscription: &Endpoint,
        unattended: Duration,
    ) -> Result<DroppedSubscription> {
        let until = self.deadline();
        if matches!(subscription, Endpoint::Queue(_)) {
            return Ok(DroppedSubscription::NotFound);
        }
        let home = Home::Endpoint(subscription.clone());
        loop {
            let before = self.attention(subscription, until).await?;
            let is_there = self.is_there(&home, until).await?;
            // Somebody may have died over its end, or not have heard the answer.
            if !is_there && !before.as_ref().is_some_and(Attention::has_an_end) {
                return Ok(DroppedSubscription::NotFound);
            }
            if let Some(attended) = before.as_ref().filter(|_| is_there).and_then(Attention::attended) {
                let ago = self.server_now(until).await?.since(attended);
                if ago < unattended {
                    return Ok(DroppedSubscription::Attended(ago));
                }
            }
            let begun = self.clock.now();
            let Some(mark) = self.begin_end(subscription, before.as_ref(), until).await? else { continue };
            let ends = self.ends(until).await?;
            // Long before anyone takes the mark for one that was left behind.
            if self.clock.now().since(begun) > ENDING / 4 {
                return Err(error(
                    ErrorKind::Timeout,
                    "the subscription was not dropped: the server is slow",
                )
                .with("subscription", subscription));
            }
            let within = until.min(Instant::now() + ENDING / 4);
            self.delete_stream(&self.names.stream(subscription), within).await?;
            self.clear_away(subscription, ends, mark).await?;
            return Ok(DroppedSubscription::Done);
        }
    }

    /// The numbers that come next in the streams that endpoints share.
    async fn ends(&self, until: Instant) -> Result<Ends> {
        let next = async |home: Home| {
            let info = self.stream_info(&home.name(self), None, until).await?;
            Ok::<_, crate::Error>(info.map_or(1, |info| info.state.last_seq + 1))
        };
        Ok(Ends {
            state: next(Home::State).await?,
            later: next(Home::Later).await?,
            dead: next(Home::Dead).await?,
        })
    }

    /// Removes what lies elsewhere of a subscription whose stream is gone. Its fence row stays: fences only grow.
    async fn clear_away(&self, subscription: &Endpoint, ends: Ends, mark: u64) -> Result<()> {
        self.remove_delayed(subscription, ends.later).await?;
        let (names, until) = (&self.names, self.deadline());
        self.purge_before(&names.dead(), &names.dead_letters(subscription), ends.dead, until).await?;
        for subjects in [names.records(subscription), names.progress(subscription)] {
            self.purge_before(&names.state(), &subjects, ends.state, until).await?;
        }
        self.remove(&names.state(), mark, until).await.map(drop)
    }

    /// Removes copies of delayed events one by one: a purge would have the server forget when the others are due
    /// (nats-server 2.9).
    async fn remove_delayed(&self, subscription: &Endpoint, end: u64) -> Result<()> {
        let (stream, subjects) = (self.names.later(), self.names.all_delayed(subscription));
        let mut from = 1;
        while let Some(stored) = self.next_of(&stream, &subjects, from, self.deadline()).await?
            && stored.sequence < end
        {
            self.remove(&stream, stored.sequence, self.deadline()).await?;
            from = stored.sequence + 1;
        }
        Ok(())
    }
}

/// Up to where in each stream something of a dropped subscription may lie.
#[derive(Clone, Copy)]
struct Ends {
    state: u64,
    later: u64,
    dead: u64,
}
