//! Ending, extending and marking claims. Each is confirmed by the server before it is answered.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::claims::{Claim, DONE, GIVEN_BACK, IN_PROGRESS, Told, not_for};
use super::client::Ask;
use super::consumer::Reader;
use super::counts::Record;
use super::durable;
use super::error::{Lost, closed, error, receipt_lost};
use super::record::NO_RECORD;
use crate::contract::{Outgoing, Settlement};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Receipt, Verdict};

/// How long the server may say nothing to an acknowledgement before it is looked into why.
const SILENCE: Duration = Duration::from_secs(1);

impl Reader {
    /// Ends claims, all at the same time, each answered for.
    pub(super) async fn settle(&self, settlements: Vec<Settlement>) -> Vec<Result<()>> {
        if let Err(lost) = self.may_go_on().await {
            return settlements.iter().map(|_| Err(lost.clone())).collect();
        }
        let ending = settlements.into_iter().map(|settlement| self.settle_one(settlement));
        futures_util::future::join_all(ending).await
    }

    /// Whether the store is open and a singleton's term in force.
    async fn may_go_on(&self) -> Result<()> {
        if self.client.closed().is_cancelled() {
            return Err(closed());
        }
        match &self.term {
            Some(term) => term.check(&self.client, &self.spec.endpoint).await,
            None => Ok(()),
        }
    }

    pub(super) async fn settle_one(&self, settlement: Settlement) -> Result<()> {
        let claim = self.claims.take(&settlement.receipt, self.client.clock.now())?;
        let receipt = settlement.receipt.clone();
        let ended = self.end(&claim, settlement).await;
        if let Err(failure) = &ended
            && failure.kind() != ErrorKind::ReceiptLost
        {
            // It may be tried again: each step may be made twice.
            self.claims.put_back(&receipt, Claim { is_in_doubt: true, ..claim });
        }
        ended
    }

    async fn end(&self, claim: &Claim, settlement: Settlement) -> Result<()> {
        let Settlement { verdict, outgoing, .. } = settlement;
        self.send(&outgoing).await?;
        match verdict {
            Verdict::Complete => self.finish(claim).await,
            Verdict::DeadLetter { reason, error } => {
                self.bury(claim, (&reason, error.as_ref()), claim.record.claims).await
            }
            Verdict::Release => {
                self.return_to_queue(claim, claim.record.released(), GIVEN_BACK.to_vec()).await
            }
            Verdict::Retry { after, .. } => {
                let after = after.unwrap_or_default();
                let due = self.client.server_now(self.client.deadline()).await? + after;
                let how = if after.is_zero() { GIVEN_BACK.to_vec() } else { not_for(after) };
                self.return_to_queue(claim, claim.record.failed(due.as_micros()), how).await
            }
        }
    }

    /// Sends what a settlement carries: before the claim ends, so that it is not lost between the two.
    async fn send(&self, outgoing: &[Outgoing]) -> Result<()> {
        if outgoing.is_empty() {
            return Ok(());
        }
        self.post.send_all(outgoing).await.into_iter().collect::<Result<Vec<_>>>().map(drop)
    }

    /// Puts the message among the dead letters, and ends the claim. Two holders may do so at once, one of whom has lost his
    /// claim: no letter is written after a claim's end, and whoever has ended his sees to it that there is one.
    pub(super) async fn bury(
        &self,
        claim: &Claim,
        why: (&str, Option<&Error>),
        deliveries: u32,
    ) -> Result<()> {
        let until = self.deadline_of(claim).ok_or_else(receipt_lost)?;
        let letter = self.write_letter(claim, why, deliveries, until).await?;
        match self.finish(claim).await {
            Ok(()) => {
                let (dead, until) = (self.client.names.dead(), self.client.deadline());
                if self.client.all_of(&dead, letter..=letter, until).await?.is_empty() {
                    // Overwritten by another's, or taken back with it.
                    self.write_letter(claim, why, deliveries, until).await?;
                }
                Ok(())
            }
            Err(refusal) => {
                // After a former try, whose answer was lost, the letter may be all that is left.
                if refusal.kind() == ErrorKind::ReceiptLost && !claim.is_in_doubt {
                    self.take_back(claim, letter).await;
                }
                Err(refusal)
            }
        }
    }

    async fn write_letter(
        &self,
        claim: &Claim,
        why: (&str, Option<&Error>),
        deliveries: u32,
        until: Instant,
    ) -> Result<u64> {
        self.client.bury(&self.spec.endpoint, claim.id, &claim.payload, why, deliveries, until).await
    }

    /// Takes back the letter of a message that is still in its queue, and so somebody else's. Where that cannot be seen
    /// there is rather a letter too many.
    async fn take_back(&self, claim: &Claim, letter: u64) {
        let (client, endpoint, until) = (&self.client, &self.spec.endpoint, self.client.deadline());
        let removed = async {
            let queue = client.names.stream(endpoint);
            if client.all_of(&queue, claim.sequence..=claim.sequence, until).await?.is_empty() {
                return Ok(true);
            }
            client.remove(&client.names.dead(), letter, until).await
        };
        if let Err(error) = removed.await {
            tracing::warn!(%endpoint, %error, "a dead letter stays whose message is still in its queue");
        }
    }

    /// The message is done: it leaves the queue.
    pub(super) async fn finish(&self, claim: &Claim) -> Result<()> {
        self.answer(claim, DONE.to_vec()).await?;
        if claim.recorded.is_some() {
            self.client.forget(&self.spec.endpoint, claim.sequence).await;
        }
        Ok(())
    }

    /// The message stays in the queue: what became of the claim is written down before it ends.
    pub(super) async fn return_to_queue(&self, claim: &Claim, record: Record, how: Vec<u8>) -> Result<()> {
        if self.write_own(claim, &record).await?.is_none() {
            self.may_go_on().await?;
            return Err(receipt_lost());
        }
        self.answer(claim, how).await
    }

    /// Writes what has become of our claim over what was known before it, and over nothing else: where a first try has
    /// ended the claim and its answer was lost, somebody else may have the message by now. `None` if it is so, or the claim
    /// has run out: what is written then would stand in the way of who has the message.
    async fn write_own(&self, claim: &Claim, record: &Record) -> Result<Option<u64>> {
        let Some(until) = self.deadline_of(claim) else { return Ok(None) };
        // Our own note that the run is made alone, whose answer was lost.
        let is_ours = |found: &Record| {
            Record { alone: false, ..found.clone() } == Record { alone: false, ..claim.record.clone() }
        };
        let over = (record, claim.recorded.unwrap_or(NO_RECORD));
        self.client.record_over(&self.spec.endpoint, claim.sequence, over, is_ours, until).await
    }

    /// Until when something may be said of a claim, which is not later than its end: also where that comes while a
    /// connection is waited for. `None` if it has come.
    fn deadline_of(&self, claim: &Claim) -> Option<Instant> {
        let left = claim.until.since(self.client.clock.now());
        (!left.is_zero()).then(|| self.client.deadline().min(Instant::now() + left))
    }

    /// Answers a delivery, and awaits that the server has taken note of it. Nothing is said of a claim that has run out: the
    /// server takes an answer from anybody.
    async fn answer(&self, claim: &Claim, with: impl Into<Bytes>) -> Result<()> {
        let until = self.deadline_of(claim).ok_or_else(receipt_lost)?;
        let answered = tokio::select! {
            biased;
            answered = self.client.ask(Ask::new(claim.reply.as_str(), with), until, Lost::Again) => answered?,
            () = self.forgotten(claim, until) => return Err(receipt_lost()),
        };
        if answered.is_some() {
            return Ok(());
        }
        // Nobody listens there: the consumer is gone, or the server has only just started.
        self.may_go_on().await?;
        match self.durable().await? {
            Some(durable)
                if durable::info(&self.client, &durable.source, until)
                    .await?
                    .is_some_and(|info| info.epoch() == claim.record.epoch) =>
            {
                Err(error(ErrorKind::Unavailable, "the server does not take acknowledgements yet"))
            }
            _ => {
                self.lose_durable();
                Err(receipt_lost())
            }
        }
    }

    /// Returns if the server is silent because it does not know of the delivery any more. One that has crashed may have lost
    /// the last moments' deliveries: it makes them again, and does not say a word to who acknowledges the lost ones
    /// (nats-server 2.15; 2.9 takes their acknowledgements).
    async fn forgotten(&self, claim: &Claim, until: Instant) {
        tokio::time::sleep(SILENCE).await;
        let source = match self.durable().await {
            Ok(Some(durable)) => durable.source.clone(),
            _ => return std::future::pending().await,
        };
        let delivery = Told::read(&claim.reply).map_or(0, |told| told.delivery);
        match durable::info(&self.client, &source, until).await {
            Ok(Some(info)) if info.epoch() == claim.record.epoch && !info.knows(delivery) => {}
            _ => std::future::pending().await,
        }
    }

    /// Makes claims last `lease` from now on, each answered for.
    pub(super) async fn extend(&self, receipts: &[Receipt], lease: Duration) -> Vec<Result<()>> {
        let may = match (&self.term, self.client.closed().is_cancelled()) {
            (_, true) => Err(closed()),
            (Some(term), false) => term.keep(&self.client, &self.spec.endpoint).await,
            (None, false) => Ok(()),
        };
        if let Err(lost) = may {
            return receipts.iter().map(|_| Err(lost.clone())).collect();
        }
        let extending = receipts.iter().map(|receipt| self.extend_one(receipt, lease));
        futures_util::future::join_all(extending).await
    }

    async fn extend_one(&self, receipt: &Receipt, lease: Duration) -> Result<(), Error> {
        let now = self.client.clock.now();
        let claim = self.claims.get(receipt, now)?;
        let how = if lease == claim.ack_wait { IN_PROGRESS.to_vec() } else { not_for(lease) };
        self.answer(&claim, how).await?;
        self.claims.change(receipt, |claim| claim.until = now + lease);
        Ok(())
    }

    /// Records that a claim's run is made alone.
    pub(super) async fn record_alone(&self, receipt: &Receipt) -> Result<()> {
        self.may_go_on().await?;
        let claim = self.claims.get(receipt, self.client.clock.now())?;
        let record = Record { alone: true, ..claim.record.clone() };
        let revision = self.write_own(&claim, &record).await?.ok_or_else(receipt_lost)?;
        self.claims.change(receipt, |claim| {
            claim.record = record;
            claim.recorded = Some(revision);
        });
        Ok(())
    }
}
