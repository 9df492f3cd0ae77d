//! What becomes of claims: done, tried again, given back, given up, kept alive.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::call::{Answer, Effort};
use super::super::error::Failure;
use super::claims::{Claim, lost};
use super::message::{Death, LONGEST, Stored, Tally};
use super::name::dead_letters_of;
use super::send::Outbox;
use super::service::{LONGEST_WAIT, may_be_repeated};
use crate::clock::{BootInstant, Clock};
use crate::contract::Settlement;
use crate::error::Result;
use crate::message::Verdict;

/// How long a claim is kept from ending while it is settled in more than one step.
const WHILE_SETTLING: Duration = Duration::from_secs(60);

/// What an extension may take at the least, be the claim about to end.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(2);

/// One queue, and what is done with its claims.
pub(super) struct Desk {
    pub(super) outbox: Arc<Outbox>,
    pub(super) queue: String,
    pub(super) clock: Clock,
}

impl Desk {
    /// Ends a claim as a settlement says.
    pub(super) async fn settle(&self, claim: &mut Claim, settlement: Settlement) -> Result<()> {
        let Settlement { verdict, outgoing, .. } = settlement;
        if !outgoing.is_empty() && !claim.carried {
            // There is no transaction over two queues: only what is certainly ours sends, and what it sends comes first.
            self.extend(claim, WHILE_SETTLING).await?;
            for answer in self.outbox.post(outgoing).await {
                answer?;
            }
            claim.carried = true;
        }
        let tally = claim.stored.tally;
        match verdict {
            Verdict::Complete => self.complete(claim).await,
            Verdict::Release => self.put_back(claim, tally.released().kept(), Duration::ZERO).await,
            Verdict::Retry { after, .. } => {
                self.put_back(claim, tally.failed(claim.alone), after.unwrap_or_default()).await
            }
            Verdict::DeadLetter { reason, error } => self.bury(claim, &reason, error.as_ref()).await,
        }
    }

    /// The message is done, and goes.
    pub(super) async fn complete(&self, claim: &mut Claim) -> Result<()> {
        self.delete(claim).await?;
        self.outbox.service.drop_blob(claim.stored.blob()).await;
        Ok(())
    }

    async fn delete(&self, claim: &mut Claim) -> Result<()> {
        let called = self.outbox.service.delete(&self.queue, claim.place()).await;
        let answer = claim.ended(called, self.clock.now());
        self.over(claim, answer)
    }

    /// Takes note of how the attempt to end a claim ended.
    fn over(&self, claim: &mut Claim, answer: Result<(), Failure>) -> Result<()> {
        match answer {
            Ok(()) => {
                claim.is_over = true;
                Ok(())
            }
            Err(failure) => Err(self.refused(claim, failure)),
        }
    }

    fn refused(&self, claim: &mut Claim, failure: Failure) -> crate::error::Error {
        if failure.is_stale_claim() {
            claim.is_over = true;
            return lost();
        }
        self.outbox.service.describe(failure)
    }

    /// Makes the message available again after a time, with these counts.
    pub(super) async fn put_back(&self, claim: &mut Claim, tally: Tally, wait: Duration) -> Result<()> {
        let service = &self.outbox.service;
        let due = (wait > LONGEST_WAIT).then(|| service.clock.now() + wait);
        self.wait_until_due(claim, Stored { tally, due, ..claim.stored.clone() }, wait).await?;
        if wait.is_zero() {
            self.outbox.hints.tell(&self.queue);
        }
        Ok(())
    }

    /// Puts the message back as `stored`, out of sight for so long.
    pub(super) async fn wait_until_due(
        &self,
        claim: &mut Claim,
        stored: Stored,
        wait: Duration,
    ) -> Result<()> {
        let service = &self.outbox.service;
        let text = stored.text_again();
        let letter = service.fit(stored, text).await?;
        let update =
            service.update(&self.queue, claim.place(), wait, Some(&letter.text), may_be_repeated()).await;
        let answer = claim.ended(update, self.clock.now());
        let result = self.over(claim, answer);
        // Not if an attempt has perhaps put it there.
        if result.is_err() && claim.is_over && !claim.perhaps_ended {
            service.drop_blob(letter.blob.as_deref()).await;
        }
        result
    }

    /// Puts the message among the dead letters: there first, and only then out of its queue. So it is never lost, and at
    /// worst in both.
    pub(super) async fn bury(
        &self,
        claim: &mut Claim,
        reason: &str,
        error: Option<&crate::error::Error>,
    ) -> Result<()> {
        if !claim.is_buried {
            // Only what is certainly ours is written there.
            self.extend(claim, WHILE_SETTLING).await?;
            let service = &self.outbox.service;
            let death = Death::new(reason, error, service.clock.now(), claim.stored.tally.claims);
            let stored = Stored { death: Some(death), due: None, ..claim.stored.clone() };
            let letter = service.fit_copy(stored, LONGEST).await?;
            if let Err(failure) = self.put_among_the_dead(&letter.text).await {
                if failure.is_certain() {
                    service.drop_blob(letter.blob.as_deref()).await;
                }
                return Err(service.describe(failure));
            }
            claim.is_buried = true;
        }
        self.complete(claim).await
    }

    async fn put_among_the_dead(&self, text: &str) -> Answer<()> {
        let (service, queue) = (&self.outbox.service, dead_letters_of(&self.queue));
        let put = || service.put(&queue, text, Duration::ZERO);
        let answer = match put().await {
            Err(failure) if failure.is_missing_queue() => match service.create(&queue).await {
                Ok(()) => put().await,
                Err(failure) => Err(failure),
            },
            answer => answer,
        };
        answer.map(drop)
    }

    /// Makes a claim last so long from now on.
    pub(super) async fn extend(&self, claim: &mut Claim, lease: Duration) -> Result<()> {
        let asked = self.clock.now();
        let effort = to_keep(claim, asked);
        let called = self.outbox.service.update(&self.queue, claim.place(), lease, None, effort).await;
        claim.extended(called, asked, lease).map_err(|failure| self.refused(claim, failure))
    }

    /// Writes down that the claim's run is made alone, and makes the claim last so long from now on.
    pub(super) async fn record_alone(&self, claim: &mut Claim, lease: Duration) -> Result<()> {
        let (asked, service) = (self.clock.now(), &self.outbox.service);
        let stored = Stored { tally: claim.stored.tally.alone(), ..claim.stored.clone() };
        let text = stored.text_again();
        let letter = service.fit(stored, text).await?;
        let effort = to_keep(claim, self.clock.now());
        let called = service.update(&self.queue, claim.place(), lease, Some(&letter.text), effort).await;
        claim.extended(called, asked, lease).map_err(|failure| self.refused(claim, failure))?;
        claim.alone = true;
        if letter.blob.is_some() {
            claim.stored.content = letter.stored.content;
        }
        Ok(())
    }
}

/// The effort for what keeps a claim. The request is not given up for another as long as its answer may be of use: it
/// carries the receipt without which the claim is lost.
fn to_keep(claim: &Claim, now: BootInstant) -> Effort {
    let patience = (claim.expires.since(now) / 4 * 3).max(SHORTEST_PATIENCE);
    Effort { deadline: Instant::now() + patience, each: patience, again: true }
}
