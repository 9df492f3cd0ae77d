//! A transport that breaks one promise.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bus::conformance::{TransportSubject, UrlSubject};
use bus::contract::{
    Attended, BoxFuture, Capabilities, Consumer, ConsumerSpec, Delay, Dropped, DroppedSubscription, Due,
    FenceClaim, FenceGuard, FenceRow, Fencing, Guarantees, Inspect, LockId, Outgoing, Placed, Pulse, PutBack,
    Raised, Readers, Reading, Sender, Settlement, SqlExecutor, Transport,
};
use bus::message::{Delivery, Endpoint, Receipt, Verdict};
use bus::settings::Order;
use bus::{Error, ErrorKind, Headers, MessageId, Result};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Which promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    SettleById,
    LoseThousandth,
    DoubleThousandth,
    IgnoreDelay,
    LoseWithDroppedReceive,
    HidePutBack,
    CountRelease,
    IgnoreExtend,
    ReverseAnswers,
    ReverseMessages,
    ForgetCrashes,
    ForgetAlone,
    IgnoreFence,
    IgnoreGuard,
    IgnoreRowsLock,
    SendOutgoingRegardless,
    IgnoreOrder,
    IgnoreBytes,
    PretendPutBack,
    PretendDrop,
    IgnoreStop,
    HidePulse,
    KeepWhenStopped,
    ForgetReaders,
    SweepNothing,
    SweepWhatIsYoung,
    DropWhatIsRead,
    PretendDropSubscription,
}

/// What the hosts of one store share.
#[derive(Default)]
struct Shared {
    sent: AtomicUsize,
    /// The latest claim of each message: what a backend has that settles by id.
    latest: Mutex<HashMap<u64, Receipt>>,
}

/// Opens an honest store and lies about it.
pub(crate) struct SabotagedTransport {
    honest: UrlSubject,
    fault: Fault,
    shared: Arc<Shared>,
}

impl SabotagedTransport {
    pub(crate) fn new(honest: UrlSubject, fault: Fault) -> Self {
        SabotagedTransport { honest, fault, shared: Arc::default() }
    }
}

impl TransportSubject for SabotagedTransport {
    fn open_transport(&self) -> BoxFuture<'_, Result<Arc<dyn Transport>>> {
        Box::pin(async move {
            let inner = self.honest.open_transport().await?;
            let (fault, shared) = (self.fault, Arc::clone(&self.shared));
            Ok(Arc::new(Saboteur { inner, fault, shared }) as Arc<dyn Transport>)
        })
    }
}

/// The same wrapper around whatever is wrapped: the inner one, the fault, and what is shared.
struct Saboteur<T: ?Sized> {
    inner: Arc<T>,
    fault: Fault,
    shared: Arc<Shared>,
}

impl<T: ?Sized> Saboteur<T> {
    fn around<U: ?Sized>(&self, inner: Arc<U>) -> Saboteur<U> {
        Saboteur { inner, fault: self.fault, shared: Arc::clone(&self.shared) }
    }
}

impl Readers for Saboteur<dyn Readers> {
    fn attend<'a>(&'a self, attended: &'a [Attended]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match self.fault {
                Fault::ForgetReaders => Ok(()),
                Fault::SweepWhatIsYoung => {
                    let short = |one: &Attended| {
                        let retention = one.retention.map(|retention| retention / 3);
                        Attended::new(one.endpoint.clone()).retention(retention)
                    };
                    self.inner.attend(&attended.iter().map(short).collect::<Vec<_>>()).await
                }
                _ => self.inner.attend(attended).await,
            }
        })
    }

    fn readings(&self) -> BoxFuture<'_, Result<Vec<Reading>>> {
        self.inner.readings()
    }

    fn sweep(&self) -> BoxFuture<'_, Result<Vec<(Endpoint, u64)>>> {
        match self.fault {
            Fault::SweepNothing => Box::pin(std::future::ready(Ok(Vec::new()))),
            _ => self.inner.sweep(),
        }
    }

    fn drop_subscription<'a>(
        &'a self,
        subscription: &'a Endpoint,
        unattended: Duration,
    ) -> BoxFuture<'a, Result<DroppedSubscription>> {
        match self.fault {
            Fault::DropWhatIsRead => self.inner.drop_subscription(subscription, Duration::ZERO),
            Fault::PretendDropSubscription => Box::pin(std::future::ready(Ok(DroppedSubscription::Done))),
            _ => self.inner.drop_subscription(subscription, unattended),
        }
    }
}

impl Transport for Saboteur<dyn Transport> {
    fn capabilities(&self) -> Capabilities {
        let mut powers = self.inner.capabilities();
        powers.fencing = powers.fencing.map(|inner| Arc::new(self.around(inner)) as Arc<dyn Fencing>);
        powers.inspect = powers.inspect.map(|inner| Arc::new(self.around(inner)) as Arc<dyn Inspect>);
        powers.delay = powers.delay.map(|inner| Arc::new(self.around(inner)) as Arc<dyn Delay>);
        powers.readers = powers.readers.map(|inner| Arc::new(self.around(inner)) as Arc<dyn Readers>);
        powers
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn prepare<'a>(&'a self, endpoints: &'a [Endpoint]) -> BoxFuture<'a, Result<()>> {
        self.inner.prepare(endpoints)
    }

    fn sender(&self) -> Arc<dyn Sender> {
        Arc::new(self.around(self.inner.sender()))
    }

    fn consumer(&self, mut spec: ConsumerSpec) -> BoxFuture<'_, Result<Arc<dyn Consumer>>> {
        match self.fault {
            Fault::IgnoreFence => spec.fence = None,
            Fault::IgnoreOrder => spec.order = Order::Relaxed,
            Fault::HidePulse => spec.pulse = Pulse::default(),
            Fault::IgnoreBytes => spec.max_bytes = usize::MAX,
            _ => {}
        }
        Box::pin(async move {
            let lease = spec.lease;
            let inner = self.inner.consumer(spec).await?;
            let honest = self.around(inner);
            let sender = self.inner.sender();
            Ok(Arc::new(SabotagedConsumer { honest, sender, lease }) as Arc<dyn Consumer>)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

impl Sender for Saboteur<dyn Sender> {
    fn send(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Placed>>> {
        Box::pin(async move {
            let mut answers = Vec::with_capacity(batch.len());
            for mut message in batch {
                let thousandth = (self.shared.sent.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(1000);
                match self.fault {
                    Fault::LoseThousandth if thousandth => {
                        answers.push(Ok(Placed::new("lost")));
                        continue;
                    }
                    Fault::DoubleThousandth if thousandth => {
                        self.inner.send(vec![message.clone()]).await;
                    }
                    Fault::IgnoreDelay => message.due = message.due.map(|_| Due::In(Duration::ZERO)),
                    Fault::IgnoreGuard => message.guard = None,
                    _ => {}
                }
                answers.extend(self.inner.send(vec![message]).await);
            }
            answers
        })
    }
}

struct SabotagedConsumer {
    honest: Saboteur<dyn Consumer>,
    sender: Arc<dyn Sender>,
    lease: Duration,
}

impl SabotagedConsumer {
    fn fault(&self) -> Fault {
        self.honest.fault
    }

    /// The receipt that a settlement by id would use.
    fn by_id(&self, receipt: &Receipt) -> Receipt {
        let latest = self.honest.shared.latest.lock();
        match self.fault() {
            Fault::SettleById => latest.get(&receipt.row()).cloned().unwrap_or_else(|| receipt.clone()),
            _ => receipt.clone(),
        }
    }

    async fn sabotage_deliveries(&self, deliveries: &mut [Delivery]) {
        let mut receipts: Vec<_> = deliveries.iter().map(|delivery| delivery.receipt.clone()).collect();
        for receipt in &receipts {
            self.honest.shared.latest.lock().insert(receipt.row(), receipt.clone());
        }
        match self.fault() {
            Fault::LoseWithDroppedReceive => {
                // Between the claim and the answer the messages are nobody's for an hour.
                self.honest.inner.extend(&mut receipts, Duration::from_secs(3600)).await;
                tokio::task::yield_now().await;
                self.honest.inner.extend(&mut receipts, self.lease).await;
            }
            Fault::ReverseMessages => deliveries.reverse(),
            Fault::HidePutBack => deliveries.iter_mut().for_each(|delivery| {
                delivery.envelope.headers.remove(Headers::PUT_BACK);
            }),
            Fault::ForgetCrashes => deliveries.iter_mut().for_each(|delivery| delivery.crashes = 0),
            _ => {}
        }
    }
}

impl Consumer for SabotagedConsumer {
    fn receive<'a>(
        &'a self,
        max: usize,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let never = CancellationToken::new();
            let stop = if self.fault() == Fault::IgnoreStop { &never } else { stop };
            let mut deliveries = self.honest.inner.receive(max, stop).await?;
            self.sabotage_deliveries(&mut deliveries).await;
            if self.fault() == Fault::KeepWhenStopped && !deliveries.is_empty() {
                // The claim is made, and the answer is on its way.
                tokio::time::sleep(Duration::from_millis(2)).await;
                if stop.is_cancelled() {
                    return Ok(Vec::new());
                }
            }
            Ok(deliveries)
        })
    }

    fn extend<'a>(&'a self, receipts: &'a mut [Receipt], lease: Duration) -> BoxFuture<'a, Vec<Result<()>>> {
        Box::pin(async move {
            if self.fault() == Fault::IgnoreExtend {
                return receipts.iter().map(|_| Ok(())).collect();
            }
            let mut by_id: Vec<_> = receipts.iter().map(|receipt| self.by_id(receipt)).collect();
            let mut answers = self.honest.inner.extend(&mut by_id, lease).await;
            if self.fault() == Fault::ReverseAnswers {
                answers.reverse();
            }
            answers
        })
    }

    fn settle(&self, mut settlements: Vec<Settlement>) -> BoxFuture<'_, Vec<Result<()>>> {
        Box::pin(async move {
            for settlement in &mut settlements {
                settlement.receipt = self.by_id(&settlement.receipt);
                match (self.fault(), &settlement.verdict) {
                    (Fault::CountRelease, Verdict::Release) => {
                        let error = Error::new(ErrorKind::Handler, "interrupted");
                        settlement.verdict = Verdict::Retry { after: Some(Duration::ZERO), error };
                    }
                    (Fault::SendOutgoingRegardless, _) => {
                        self.sender.send(std::mem::take(&mut settlement.outgoing)).await;
                    }
                    _ => {}
                }
            }
            let mut answers = self.honest.inner.settle(settlements).await;
            if self.fault() == Fault::ReverseAnswers {
                answers.reverse();
            }
            answers
        })
    }

    fn record_alone<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, Result<()>> {
        match self.fault() {
            Fault::ForgetAlone => Box::pin(std::future::ready(Ok(()))),
            _ => self.honest.inner.record_alone(receipt),
        }
    }
}

impl Delay for Saboteur<dyn Delay> {
    fn cancel<'a>(
        &'a self,
        placed: &'a Placed,
        guard: Option<&'a FenceGuard>,
    ) -> BoxFuture<'a, Result<bool>> {
        self.inner.cancel(placed, guard.filter(|_| self.fault != Fault::IgnoreGuard))
    }
}

impl Fencing for Saboteur<dyn Fencing> {
    fn raise(&self, mut claim: FenceClaim) -> BoxFuture<'_, Result<Raised>> {
        if self.fault == Fault::IgnoreRowsLock {
            let lock = LockId::from("the/same");
            claim = FenceClaim::new(claim.endpoint, "for", &lock, claim.fence, claim.lock_lease);
        }
        self.inner.raise(claim)
    }

    fn row<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<FenceRow>>> {
        self.inner.row(endpoint)
    }

    fn check_in<'a>(
        &'a self,
        transaction: &'a mut dyn SqlExecutor,
        guard: &'a FenceGuard,
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.check_in(transaction, guard)
    }
}

impl Inspect for Saboteur<dyn Inspect> {
    fn endpoints(&self) -> BoxFuture<'_, Result<Vec<Endpoint>>> {
        self.inner.endpoints()
    }

    fn depth<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<bus::contract::Depth>> {
        self.inner.depth(endpoint)
    }

    fn dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        after: Option<MessageId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<bus::contract::DeadLetter>>> {
        self.inner.dead_letters(endpoint, after, limit)
    }

    fn put_back<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, PutBack)>>> {
        if self.fault == Fault::PretendPutBack {
            let answers = ids.iter().map(|id| (*id, PutBack::Done)).collect();
            return Box::pin(std::future::ready(Ok(answers)));
        }
        self.inner.put_back(endpoint, ids)
    }

    fn drop_dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, Dropped)>>> {
        if self.fault == Fault::PretendDrop {
            let answers = ids.iter().map(|id| (*id, Dropped::Done)).collect();
            return Box::pin(std::future::ready(Ok(answers)));
        }
        self.inner.drop_dead_letters(endpoint, ids)
    }
}
