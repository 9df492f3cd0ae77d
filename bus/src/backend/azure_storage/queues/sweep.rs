//! Drops what a subscription with a retention has kept for longer. Azure takes a message out only for whoever has claimed
//! it: so it is claimed, which excludes everyone else, and its count of claims then says whether it was the first. What
//! was claimed and is not to go is given back, as if it had not been; it comes behind what was sent meanwhile.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};

use super::super::error::error;
use super::claims::Claim;
use super::delivery::read;
use super::message::Stored;
use super::readers::QueueReaders;
use super::service::{MOST_AT_ONCE, Taken};
use super::settle::Desk;
use crate::clock::Timestamp;
use crate::error::{ErrorKind, Result};

/// For how long messages are out of sight that are swept away.
const WHILE_SWEEPING: Duration = Duration::from_secs(60);
/// How many of them go, or are given back, at the same time.
const AT_ONCE: usize = 8;

/// When a message was sent; of what is none of ours, when it was put there.
pub(super) fn sent_at(taken: &Taken) -> Timestamp {
    sending_of(&Stored::read(&taken.text, &taken.id), taken.put_at)
}

/// Whether a message is available, and not only shown since Azure can hide it no longer.
pub(super) fn is_due(taken: &Taken, now: Timestamp) -> bool {
    Stored::read(&taken.text, &taken.id).due.is_none_or(|due| due <= now)
}

fn sending_of(stored: &Stored, put_at: Timestamp) -> Timestamp {
    if stored.sent_at == Timestamp::from_micros(0) { put_at } else { stored.sent_at }
}

/// What is to go when it has been taken from its queue for the `times`th time: what is available, was never claimed before,
/// and was sent before then.
fn has_outlived(
    stored: &Stored,
    times: u32,
    put_at: Timestamp,
    (before, now): (Timestamp, Timestamp),
) -> bool {
    stored.tally.claimed(times).is_first()
        && stored.due.is_none_or(|due| due <= now)
        && sending_of(stored, put_at) < before
}

impl QueueReaders {
    /// One part of what is to be swept from a queue.
    pub(super) async fn sweep_queue(&self, queue: String, retention: Duration) -> Result<u64> {
        let service = &self.outbox.service;
        let seen = match service.look(&queue, MOST_AT_ONCE).await {
            Err(failure) if failure.is_missing() => return Ok(0),
            seen => seen.map_err(|failure| service.describe(failure))?,
        };
        let now = service.clock.now();
        let retention = i64::try_from(retention.as_micros()).unwrap_or(i64::MAX);
        let then = (Timestamp::from_micros(now.as_micros().saturating_sub(retention)), now);
        let would_go = |taken: &Taken| {
            let stored = Stored::read(&taken.text, &taken.id);
            has_outlived(&stored, taken.times.saturating_add(1), taken.put_at, then)
        };
        let Some(last) = seen.iter().rposition(would_go) else { return Ok(0) };
        let desk = Desk { outbox: Arc::clone(&self.outbox), queue, clock: self.clock.clone() };
        // A task of its own: a host that stops midway leaves no claim behind, which would count as a crash.
        let sweeping = self.outbox.under_way.spawn(take_out(desk, last + 1, then));
        sweeping.await.unwrap_or_else(|cause| {
            Err(error(ErrorKind::Internal, "a sweep came to a sudden end").caused_by(cause))
        })
    }
}

/// Claims the first `count` messages, and ends each of these claims; answers how many messages have gone.
async fn take_out(desk: Desk, count: usize, then: (Timestamp, Timestamp)) -> Result<u64> {
    let expires = desk.clock.now() + WHILE_SWEEPING;
    let service = &desk.outbox.service;
    let taken = service.take(&desk.queue, count, WHILE_SWEEPING).await;
    let taken = taken.map_err(|failure| service.describe(failure))?;
    let ending = taken.into_iter().map(|taken| {
        let put_at = taken.put_at;
        let (claim, times) = read(taken, expires);
        end(&desk, claim, times, put_at, then)
    });
    let ended: Vec<Result<bool>> = stream::iter(ending).buffer_unordered(AT_ONCE).collect().await;
    let mut count = 0;
    for ended in ended {
        count += u64::from(ended?);
    }
    Ok(count)
}

/// Ends a claim that was made to sweep; whether the message has gone.
async fn end(
    desk: &Desk,
    mut claim: Claim,
    times: u32,
    put_at: Timestamp,
    then: (Timestamp, Timestamp),
) -> Result<bool> {
    if !has_outlived(&claim.stored, times, put_at, then) {
        desk.give_back(claim, times).await;
        return Ok(false);
    }
    desk.complete(&mut claim).await.map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::super::message::Tally;
    use super::*;
    use crate::message::Envelope;

    /// M16: what was tried is left to its retries, what is not due to its time, what is young to its readers.
    #[test]
    fn only_what_was_never_claimed_and_is_old_goes() {
        let at = Timestamp::from_micros;
        let then = (at(500), at(1_000));
        let sent = |micros| Stored::sent(&Envelope::new("T", "x", at(micros)));
        let goes = |stored: &Stored, times| has_outlived(stored, times, at(0), then);
        assert!(goes(&sent(499), 1));
        assert!(!goes(&sent(500), 1), "it is as old as it may get");
        assert!(!goes(&sent(499), 2), "somebody has claimed it and died");
        let tried = Stored { tally: Tally::default().claimed(1).failed(false), ..sent(499) };
        assert!(!goes(&tried, 2), "it was tried");
        let passed = Stored { tally: Tally::default().claimed(1).released(), ..sent(499) };
        assert!(goes(&passed, 2) && !goes(&passed, 3), "it was given back untouched");
        assert!(!goes(&Stored { due: Some(at(1_001)), ..sent(499) }, 1), "it is not due");
        assert!(goes(&Stored { due: Some(at(1_000)), ..sent(499) }, 1));
        let foreign = sent(0);
        assert!(has_outlived(&foreign, 1, at(499), then) && !has_outlived(&foreign, 1, at(500), then));
    }
}
