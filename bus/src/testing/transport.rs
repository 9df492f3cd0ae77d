//! A transport that notes what passes, and brings about the faults that strike on the way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::faults::{Kind, Point};
use super::history::Received;
use super::life::Life;
use super::world::World;
use crate::contract::{
    Attended, BoxFuture, Capabilities, Consumer, ConsumerSpec, Delay, DroppedSubscription, Due, FenceGuard,
    Guarantees, Outgoing, Placed, Readers, Reading, Sender, Settlement, Transport,
};
use crate::error::Result;
use crate::message::{Delivery, Endpoint, Receipt, Verdict};

/// A store as one process sees it.
pub(super) struct ObservedTransport {
    inner: Arc<dyn Transport>,
    view: View,
}

/// Who looks, and at which transport.
#[derive(Clone)]
struct View {
    transport: Arc<str>,
    world: Arc<World>,
    life: Arc<Life>,
}

impl ObservedTransport {
    pub(super) fn new(name: &str, inner: Arc<dyn Transport>, world: Arc<World>, life: Arc<Life>) -> Self {
        ObservedTransport { inner, view: View { transport: name.into(), world, life } }
    }
}

impl Transport for ObservedTransport {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        capabilities.delay = capabilities
            .delay
            .map(|inner| Arc::new(ObservedDelay { inner, view: self.view.clone() }) as Arc<dyn Delay>);
        capabilities.readers =
            capabilities.readers.map(|inner| Arc::new(RestingReaders(inner)) as Arc<dyn Readers>);
        capabilities
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn prepare<'a>(&'a self, endpoints: &'a [Endpoint]) -> BoxFuture<'a, Result<()>> {
        self.inner.prepare(endpoints)
    }

    fn sender(&self) -> Arc<dyn Sender> {
        Arc::new(ObservedSender { inner: self.inner.sender(), view: self.view.clone() })
    }

    fn consumer(&self, spec: ConsumerSpec) -> BoxFuture<'_, Result<Arc<dyn Consumer>>> {
        Box::pin(self.view.life.living(async move {
            let endpoint = Arc::clone(&spec.endpoint);
            let inner = self.inner.consumer(spec).await?;
            let consumer =
                ObservedConsumer { inner, endpoint, view: self.view.clone(), claims: Mutex::default() };
            Ok(Arc::new(consumer) as Arc<dyn Consumer>)
        }))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

/// What a host does every minute is nobody's business here, and would keep the clock from going on by itself: it is taken
/// note of, and not answered.
struct RestingReaders(Arc<dyn Readers>);

impl Readers for RestingReaders {
    fn attend<'a>(&'a self, _attended: &'a [Attended]) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::pending())
    }

    fn readings(&self) -> BoxFuture<'_, Result<Vec<Reading>>> {
        self.0.readings()
    }

    fn sweep(&self) -> BoxFuture<'_, Result<Vec<(Endpoint, u64)>>> {
        Box::pin(std::future::pending())
    }

    fn drop_subscription<'a>(
        &'a self,
        subscription: &'a Endpoint,
        unattended: Duration,
    ) -> BoxFuture<'a, Result<DroppedSubscription>> {
        self.0.drop_subscription(subscription, unattended)
    }
}

impl View {
    fn sent(&self, message: Outgoing, placed: Option<Placed>) {
        let world = &self.world;
        let delay = match message.due {
            None => None,
            Some(Due::In(delay)) => Some(delay),
            Some(Due::At(moment)) => Some(moment.since(world.clock.wall())),
        };
        world.history.sent(&self.transport, message, delay, placed, world.elapsed());
    }

    fn settled(&self, message: Received, verdict: Verdict) {
        let world = &self.world;
        world.history.settled(&self.transport, message, verdict, world.elapsed());
    }
}

struct ObservedSender {
    inner: Arc<dyn Sender>,
    view: View,
}

impl Sender for ObservedSender {
    fn send(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Placed>>> {
        Box::pin(self.view.life.living(async move {
            let answers = self.inner.send(batch.clone()).await;
            for (message, answer) in batch.into_iter().zip(&answers) {
                if let Ok(placed) = answer {
                    self.view.sent(message, Some(placed.clone()));
                }
            }
            answers
        }))
    }
}

struct ObservedDelay {
    inner: Arc<dyn Delay>,
    view: View,
}

impl Delay for ObservedDelay {
    fn cancel<'a>(
        &'a self,
        placed: &'a Placed,
        guard: Option<&'a FenceGuard>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.view.life.living(async move {
            let cancelled = self.inner.cancel(placed, guard).await?;
            if cancelled {
                self.view.world.history.cancelled(&self.view.transport, placed);
            }
            Ok(cancelled)
        }))
    }
}

struct ObservedConsumer {
    inner: Arc<dyn Consumer>,
    endpoint: Arc<Endpoint>,
    view: View,
    /// What has been claimed and not yet settled.
    claims: Mutex<HashMap<Receipt, Received>>,
}

impl ObservedConsumer {
    fn strikes(&self, kind: Kind) -> bool {
        self.view.world.faults.strikes(kind, &self.endpoint)
    }

    fn claimed(&self, delivery: &Delivery) {
        let received = Received {
            endpoint: Arc::clone(&delivery.endpoint),
            envelope: delivery.envelope.clone(),
            delivery_count: delivery.delivery_count,
            failures: delivery.failures,
        };
        self.claims.lock().insert(delivery.receipt.clone(), received);
        if self.strikes(Kind::DeliverTwice)
            && let Some(store) = self.view.world.store(&self.view.transport)
        {
            // Refused only if it is not claimed any more, and then it is delivered again anyway.
            let _ = store.duplicate(&self.endpoint, &delivery.receipt);
        }
    }

    /// Settles, but for what a fault keeps from the store.
    async fn settle_in_store(&self, settlements: Vec<Settlement>) -> Vec<Result<()>> {
        let is_outcome = |one: &Settlement| !matches!(one.verdict, Verdict::Release);
        let outcome = settlements.iter().any(is_outcome);
        if outcome && self.strikes(Kind::Crash(Point::BeforeSettle)) {
            return self.view.life.crash_here().await;
        }
        let lost: Vec<bool> =
            settlements.iter().map(|one| is_outcome(one) && self.strikes(Kind::DropAck)).collect();
        let arriving = settlements.iter().zip(&lost).filter(|(_, lost)| !**lost).map(|(one, _)| one.clone());
        let mut answers = self.inner.settle(arriving.collect()).await.into_iter();
        let answers: Vec<Result<()>> =
            lost.iter().filter_map(|lost| if *lost { Some(Ok(())) } else { answers.next() }).collect();
        for ((settlement, lost), answer) in settlements.into_iter().zip(lost).zip(&answers) {
            let claim = self.claims.lock().remove(&settlement.receipt);
            if let (false, Ok(()), Some(claim)) = (lost, answer, claim) {
                settlement.outgoing.into_iter().for_each(|message| self.view.sent(message, None));
                self.view.settled(claim, settlement.verdict);
            }
        }
        if outcome && self.strikes(Kind::Crash(Point::AfterSettle)) {
            return self.view.life.crash_here().await;
        }
        answers
    }
}

impl Consumer for ObservedConsumer {
    fn receive<'a>(
        &'a self,
        max: usize,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<Delivery>>> {
        Box::pin(self.view.life.living(async move {
            let batch = self.inner.receive(max, stop).await?;
            batch.iter().for_each(|delivery| self.claimed(delivery));
            Ok(batch)
        }))
    }

    fn extend<'a>(&'a self, receipts: &'a mut [Receipt], lease: Duration) -> BoxFuture<'a, Vec<Result<()>>> {
        Box::pin(self.view.life.living(self.inner.extend(receipts, lease)))
    }

    fn settle(&self, settlements: Vec<Settlement>) -> BoxFuture<'_, Vec<Result<()>>> {
        Box::pin(self.view.life.living(self.settle_in_store(settlements)))
    }

    fn record_alone<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.view.life.living(self.inner.record_alone(receipt)))
    }
}
