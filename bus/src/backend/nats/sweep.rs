//! Drops what a subscription with a retention has kept for longer.
//!
//! Only what no consumer has come to yet is removed. The server does not remove a message under the condition that nobody
//! has claimed it, so that it is looked again afterwards how far the consumers have come. They go forwards, and the removal
//! backwards: so one that has made three deliveries meanwhile can have delivered the first three of what was removed before
//! they were removed, and no others. These are stored again.

use std::time::Duration;

use tokio::time::Instant;

use super::body;
use super::client::{Client, PAUSES};
use super::jetstream::Stored;
use super::progress::Reached;
use super::send::Mailing;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::message::Endpoint;

/// What the id begins with under which a dead letter is put back. No retention applies to it any more.
pub(super) const PUT_BACK: &str = "back.";
/// The same of what a sweep has stored again, since somebody may have claimed it.
const KEPT: &str = "kept.";

/// Whether a message is to stay, whatever its age.
fn is_to_stay(stored: &Stored) -> bool {
    let id = stored.headers.lines().find_map(|line| line.strip_prefix("Nats-Msg-Id:"));
    id.is_some_and(|id| [PUT_BACK, KEPT].iter().any(|ours| id.trim_start().starts_with(ours)))
}

/// How many messages of a subscription one call removes.
const AT_ONCE: u64 = 256;
/// By how many places the server may carry out requests in another order than that in which it gets them.
const DISORDER: u64 = 32;

/// When a message was sent; of what is none of ours, when it was stored.
pub(super) fn sent_at(stored: &Stored) -> Timestamp {
    body::decode(&stored.data).map_or(stored.time, |envelope| envelope.sent_at)
}

impl Client {
    /// One part of what is to be swept, of each subscription.
    pub(super) async fn sweep(&self) -> Result<Vec<(Endpoint, u64)>> {
        let until = self.deadline();
        let all = self.names.attention_to_subscriptions();
        let mut swept = Vec::new();
        for subject in self.subjects(&self.names.state(), &all, until).await? {
            if self.tasks.is_closed() {
                break;
            }
            let Some(subscription) = self.names.read_attention(&subject) else { continue };
            let until = self.deadline();
            let Some(attention) = self.attention(&subscription, until).await? else { continue };
            let Some(retention) = attention.retention().filter(|_| !attention.has_an_end()) else { continue };
            let count = self.sweep_one(&subscription, retention, until).await?;
            if count > 0 {
                swept.push((subscription, count));
            }
        }
        swept.sort();
        Ok(swept)
    }

    async fn sweep_one(&self, subscription: &Endpoint, retention: Duration, until: Instant) -> Result<u64> {
        let stream = self.names.stream(subscription);
        let Some(info) = self.stream_info(&stream, None, until).await? else { return Ok(0) };
        if info.state.messages == 0 {
            return Ok(0);
        }
        let before = self.reached(subscription, &info, until).await?;
        let (subject, from) = (self.names.subject(subscription), before.claimed + 1);
        let Some(first) = self.next_of(&stream, &subject, from, until).await? else { return Ok(0) };
        let now = self.server_now(until).await?;
        let is_old = |stored: &Stored| now.since(sent_at(stored)) > retention;
        if !is_old(&first) {
            return Ok(0);
        }
        let last = info.state.last_seq.min(first.sequence + AT_ONCE - 1);
        let all = self.all_of(&stream, first.sequence..=last, until).await?;
        // With gaps where something is kept: the consumers' deliveries then count for more than they are, which is safe.
        let mut old: Vec<_> = all.into_iter().take_while(is_old).filter(|one| !is_to_stay(one)).collect();
        old.reverse();
        let numbers = old.iter().map(|stored| stored.sequence).collect();
        // What is not known to have been gone may have been removed.
        let was_there = self.remove_all(&stream, numbers, until).await;
        let removed = old.into_iter().zip(was_there);
        let removed = removed.filter_map(|(stored, there)| there.unwrap_or(true).then_some(stored));
        let removed: Vec<_> = removed.rev().collect();
        let after = self.reached(subscription, &info, self.deadline()).await;
        let passed = after.as_ref().map_or(&removed[..], |after| perhaps_delivered(&removed, &before, after));
        self.keep(subscription, passed).await?;
        after?;
        Ok((removed.len() - passed.len()) as u64)
    }

    /// Stores messages again, however long that takes; at worst they are delivered twice.
    async fn keep(&self, subscription: &Endpoint, messages: &[Stored]) -> Result<()> {
        for stored in messages {
            let once = format!("{KEPT}{}.{}", stored.sequence, stored.time.as_micros());
            let mut pauses = PAUSES;
            loop {
                let mailing = Mailing { id: &once, until: self.deadline() };
                match self.deliver_to(subscription, &stored.data, &mailing).await {
                    Ok(_) => break,
                    Err(error) if self.closed().is_cancelled() || !error.is_transient() => return Err(error),
                    Err(_) => tokio::time::sleep(pauses.next()).await,
                }
            }
        }
        Ok(())
    }
}

/// Of messages that were removed, the last one first, those that a consumer may have delivered before.
fn perhaps_delivered<'r>(removed: &'r [Stored], before: &Reached, after: &Reached) -> &'r [Stored] {
    let most = match after.deliveries_since(before) {
        0 => 0,
        deliveries => deliveries.saturating_add(DISORDER),
    };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let passed = removed.iter().take(most).take_while(|stored| stored.sequence <= after.claimed).count();
    removed.get(..passed).unwrap_or_default()
}
