//! A consumer of one endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::claims::Claims;
use super::delivery::{hand_out, read};
use super::message::LARGEST_INLINE;
use super::poll::Poll;
use super::send::{Outbox, closed};
use super::service::{MOST_AT_ONCE, Taken};
use super::settle::Desk;
use crate::clock::{BootInstant, Clock};
use crate::contract::{BoxFuture, Consumer, ConsumerSpec, Settlement};
use crate::error::Result;
use crate::message::{Delivery, Receipt, Verdict};
use crate::wake::jittered;

/// How much longer an answer is awaited when the consumer is told to stop. What comes later is given back.
const AFTER_STOP: Duration = Duration::from_millis(500);
/// How often a service that is away is looked for, about.
const LOOK: Duration = Duration::from_millis(500);
/// How many claims are extended, or settled, at the same time. More would wait for each other at a service that is slow,
/// and their time would run out meanwhile.
const AT_ONCE: usize = 8;

pub(super) struct QueueConsumer {
    desk: Arc<Desk>,
    spec: ConsumerSpec,
    claims: Claims,
    poll: Poll,
    hint: watch::Receiver<()>,
    /// The service did not answer the last time. Until it answers again nothing is claimed: what is asked of a service
    /// that is frozen is done when it wakes, and nobody would have the messages.
    away: AtomicBool,
    /// What a message may weigh, by the heaviest of late.
    weight: AtomicUsize,
}

/// What was taken, and an instant before it was asked for.
type Batch = (Vec<Taken>, BootInstant);

impl QueueConsumer {
    pub(super) fn new(
        outbox: Arc<Outbox>,
        queue: String,
        clock: Clock,
        poll: Duration,
        spec: ConsumerSpec,
    ) -> Self {
        let hint = outbox.hints.listen(queue.clone());
        QueueConsumer {
            desk: Arc::new(Desk { outbox, queue, clock }),
            spec,
            claims: Claims::default(),
            poll: Poll::new(poll),
            hint,
            away: AtomicBool::new(false),
            weight: AtomicUsize::new(LARGEST_INLINE),
        }
    }

    fn closed(&self) -> &CancellationToken {
        &self.desk.outbox.closed
    }

    /// Takes what there is. `None` if the consumer was told to stop before an answer came.
    async fn take(&self, max: usize, stop: &CancellationToken) -> Result<Option<Batch>> {
        let service = &self.desk.outbox.service;
        let fit = self.spec.max_bytes / self.weight.load(Ordering::Relaxed);
        let count = max.min(fit.clamp(1, MOST_AT_ONCE));
        let asked = self.desk.clock.now();
        let desk = Arc::clone(&self.desk);
        let lease = self.spec.lease;
        let mut taking = Box::pin(async move { desk.outbox.service.take(&desk.queue, count, lease).await });
        let answer = tokio::select! {
            biased;
            answer = &mut taking => answer,
            () = self.closed().cancelled() => return Err(closed()),
            () = too_late(stop) => {
                let (desk, expires) = (Arc::clone(&self.desk), asked + lease);
                self.desk.outbox.under_way.spawn(async move {
                    for (claim, times) in taking.await.into_iter().flatten().map(|taken| read(taken, expires)) {
                        desk.give_back(claim, times).await;
                    }
                });
                return Ok(None);
            }
        };
        match answer {
            Ok(taken) => Ok(Some((taken, asked))),
            Err(failure) if failure.is_missing_queue() => {
                service.create(&self.desk.queue).await.map_err(|failure| service.describe(failure))?;
                tracing::warn!(target: "bus::azure_storage", event = "queue.made_again", endpoint = %self.spec.endpoint, queue = self.desk.queue, "the queue was gone, and has been made again");
                Ok(Some((Vec::new(), asked)))
            }
            Err(failure) => {
                self.away.store(failure.is_outage(), Ordering::Relaxed);
                Err(service.describe(failure))
            }
        }
    }

    /// Waits until the service answers again. `false` if the consumer was told to stop.
    async fn wait_for_service(&self, stop: &CancellationToken) -> Result<bool> {
        while self.away.load(Ordering::Relaxed) {
            tokio::select! {
                () = stop.cancelled() => return Ok(false),
                () = self.closed().cancelled() => return Err(closed()),
                answers = self.desk.outbox.service.answers() => self.away.store(!answers, Ordering::Relaxed),
            }
            if self.away.load(Ordering::Relaxed) {
                // Looked at again at the head of the loop.
                let _ = tokio::time::timeout(jittered(LOOK), stop.cancelled()).await;
            }
        }
        Ok(true)
    }

    /// Makes deliveries of what was taken, as far as it may be delivered, and not more than may be at once.
    async fn open(&self, (taken, asked): Batch) -> Vec<Delivery> {
        self.claims.sweep(self.desk.clock.now());
        let expires = asked + self.spec.lease;
        let (mut opening, mut surplus, mut weight, mut heaviest) =
            (Vec::new(), Vec::new(), 0, LARGEST_INLINE);
        for taken in taken {
            let (claim, times) = read(taken, expires);
            heaviest = heaviest.max(claim.stored.weight());
            match weight == 0 || weight < self.spec.max_bytes {
                true => {
                    weight += claim.stored.weight();
                    opening.push((claim, times));
                }
                false => surplus.push((claim, times)),
            }
        }
        self.weight.store(heaviest, Ordering::Relaxed);
        let open = opening.into_iter().map(|(mut claim, times)| async move {
            let envelope = self.desk.open(&mut claim, times).await?;
            Some(hand_out(&self.claims, claim, envelope, &self.spec.endpoint, asked))
        });
        let give_back = surplus.into_iter().map(|(claim, times)| self.desk.give_back(claim, times));
        let (opened, _) = futures_util::join!(join_all(open), join_all(give_back));
        opened.into_iter().flatten().collect()
    }

    async fn settle_one(&self, settlement: Settlement) -> Result<()> {
        let owned = self.claims.find(&settlement.receipt)?;
        let receipt = settlement.receipt.clone();
        let again = match &settlement.verdict {
            Verdict::Retry { after, .. } => *after,
            _ => None,
        };
        let mut claim = owned.lock().await;
        // It may have ended while its owner was awaited.
        self.claims.find(&receipt)?;
        let result = self.desk.settle(&mut claim, settlement).await;
        if claim.is_over {
            self.claims.forget(&receipt);
        }
        if let (Ok(()), Some(after)) = (&result, again) {
            self.poll.due_in(after);
        }
        result
    }

    async fn extend_one(&self, receipt: &Receipt, lease: Duration) -> Result<()> {
        let owned = self.claims.find(receipt)?;
        let mut claim = owned.lock().await;
        self.claims.find(receipt)?;
        let result = self.desk.extend(&mut claim, lease).await;
        if claim.is_over {
            self.claims.forget(receipt);
        }
        result
    }
}

async fn too_late(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(AFTER_STOP).await;
}

impl Consumer for QueueConsumer {
    fn receive<'a>(
        &'a self,
        max: usize,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let mut hint = self.hint.clone();
            loop {
                hint.mark_unchanged();
                if self.closed().is_cancelled() {
                    return Err(closed());
                }
                if stop.is_cancelled() || !self.wait_for_service(stop).await? {
                    return Ok(Vec::new());
                }
                let Some(batch) = self.take(max, stop).await? else { return Ok(Vec::new()) };
                let was_empty = batch.0.is_empty();
                let deliveries = self.open(batch).await;
                if !deliveries.is_empty() {
                    self.poll.found();
                    return Ok(deliveries);
                }
                if !was_empty {
                    continue;
                }
                self.spec.pulse.beat(self.desk.clock.now(), self.poll.longest());
                tokio::select! {
                    () = stop.cancelled() => return Ok(Vec::new()),
                    () = self.closed().cancelled() => return Err(closed()),
                    Ok(()) = hint.changed() => {}
                    () = self.poll.pause() => {}
                }
            }
        })
    }

    fn extend<'a>(&'a self, receipts: &'a mut [Receipt], lease: Duration) -> BoxFuture<'a, Vec<Result<()>>> {
        Box::pin(async move {
            if self.closed().is_cancelled() {
                return receipts.iter().map(|_| Err(closed())).collect();
            }
            let extending: Vec<_> = receipts.iter().map(|receipt| self.extend_one(receipt, lease)).collect();
            stream::iter(extending).buffered(AT_ONCE).collect().await
        })
    }

    fn settle(&self, settlements: Vec<Settlement>) -> BoxFuture<'_, Vec<Result<()>>> {
        Box::pin(async move {
            if self.closed().is_cancelled() {
                return settlements.iter().map(|_| Err(closed())).collect();
            }
            let settling: Vec<_> =
                settlements.into_iter().map(|settlement| self.settle_one(settlement)).collect();
            stream::iter(settling).buffered(AT_ONCE).collect().await
        })
    }

    fn record_alone<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if self.closed().is_cancelled() {
                return Err(closed());
            }
            let owned = self.claims.find(receipt)?;
            let mut claim = owned.lock().await;
            self.claims.find(receipt)?;
            let result = self.desk.record_alone(&mut claim, self.spec.lease).await;
            if claim.is_over {
                self.claims.forget(receipt);
            }
            result
        })
    }
}
