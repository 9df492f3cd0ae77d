//! A pump over a memory store, with paused time, and wrappers that make its consumer misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bus::clock::Clock;
use bus::contract::{
    BoxFuture, Consumer, ConsumerSpec, Depth, Inspect, OpenOptions, Outgoing, Pulse, Scheme, Settlement,
    StoreUrl, Transport,
};
use bus::message::{Delivery, Endpoint, Envelope, MessageId, Receipt, Verdict};
use bus::pipeline::{Middleware, Pipeline};
use bus::pump::{Pump, PumpSpec, Signals, Throttle};
use bus::scope::HostScope;
use bus::settings::{self, Resolved};
use bus::{Error, ErrorKind, Result, Term};
use tokio_util::sync::CancellationToken;

/// A store with one queue, `work`.
pub struct Store {
    pub transport: Arc<dyn Transport>,
    pub endpoint: Arc<Endpoint>,
    pub clock: Clock,
}

impl Store {
    /// A store that nobody else sees.
    pub async fn fresh() -> Store {
        let clock = Clock::tokio();
        let url = StoreUrl::parse(&format!("memory://{}", uuid::Uuid::new_v4())).unwrap();
        let open = Scheme::find("memory").unwrap().transport.unwrap();
        let transport = open(&url, &OpenOptions::new(clock.clone())).await.unwrap();
        let endpoint = Arc::new(Endpoint::queue("work").unwrap());
        transport.prepare(&[(*endpoint).clone()]).await.unwrap();
        Store { transport, endpoint, clock }
    }

    pub async fn send(&self, count: usize) -> Vec<MessageId> {
        self.send_bodies((0..count).map(|i| i.to_string().into())).await
    }

    pub async fn send_bodies(&self, bodies: impl IntoIterator<Item = bytes::Bytes>) -> Vec<MessageId> {
        let envelopes: Vec<_> =
            bodies.into_iter().map(|body| Envelope::new("test", body, self.clock.wall())).collect();
        let ids = envelopes.iter().map(|envelope| envelope.id).collect();
        let batch =
            envelopes.into_iter().map(|envelope| Outgoing::new(self.endpoint.target(), envelope)).collect();
        for placed in self.transport.sender().send(batch).await {
            placed.unwrap();
        }
        ids
    }

    /// Messages that were in flight each time when five processes claimed everything and died.
    pub async fn suspects(&self, count: usize) -> Vec<MessageId> {
        let ids = self.send(count).await;
        let lease = Duration::from_secs(1);
        for _ in 0..5 {
            let doomed = self.consumer(lease).await;
            assert_eq!(doomed.receive(100, &CancellationToken::new()).await.unwrap().len(), count);
            tokio::time::sleep(lease + Duration::from_millis(10)).await;
        }
        ids
    }

    pub async fn consumer(&self, lease: Duration) -> Arc<dyn Consumer> {
        self.transport.consumer(ConsumerSpec::new(Arc::clone(&self.endpoint), lease)).await.unwrap()
    }

    pub fn inspect(&self) -> Arc<dyn Inspect> {
        self.transport.capabilities().inspect.unwrap()
    }

    pub async fn depth(&self) -> Depth {
        self.inspect().depth(&self.endpoint).await.unwrap()
    }

    /// Waits, in virtual time, until the store looks as wanted.
    pub async fn until(&self, what: &str, wanted: impl Fn(Depth) -> bool) {
        let reached = async {
            while !wanted(self.depth().await) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(3600), reached).await.is_err() {
            panic!("never came to: {what}; it is {:?}", self.depth().await);
        }
    }

    /// What a consumer of another process would get at once.
    pub async fn receive_all(&self) -> Vec<Delivery> {
        let consumer = self.consumer(Duration::from_secs(30)).await;
        let mut all = Vec::new();
        loop {
            let stop = CancellationToken::new();
            let received =
                tokio::time::timeout(Duration::from_millis(50), consumer.receive(1000, &stop)).await;
            match received {
                Ok(batch) => all.extend(batch.unwrap()),
                Err(_) => return all,
            }
        }
    }
}

/// What a pump under test is made of.
pub struct Setup {
    pub settings: Resolved,
    pub middleware: Vec<Arc<dyn Middleware>>,
    pub consumer: Option<Arc<dyn Consumer>>,
    /// A singleton's term, and whether the store is said to fence.
    pub term: Option<(Term, bool)>,
}

impl Setup {
    pub fn new(calls: usize, ahead: usize) -> Setup {
        let mut settings = Resolved::of::<settings::Default>(false);
        settings.max_concurrent_calls = calls;
        settings.prefetch_count = ahead;
        Setup { settings, middleware: Vec::new(), consumer: None, term: None }
    }

    pub fn lease(mut self, lease: Duration) -> Setup {
        self.settings.lease = lease;
        self
    }

    pub fn term(mut self, term: &Term, fenced: bool) -> Setup {
        self.term = Some((term.clone(), fenced));
        self
    }

    pub fn consumer(mut self, consumer: Arc<dyn Consumer>) -> Setup {
        self.consumer = Some(consumer);
        self
    }

    pub async fn start<F, Fut>(self, store: &Store, handler: F) -> Running
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        let signals = Signals::default();
        let consumer = match self.consumer {
            Some(consumer) => consumer,
            None => store.consumer(self.settings.lease).await,
        };
        let pipeline = Pipeline::new(
            Arc::clone(&store.endpoint),
            self.settings.clone(),
            self.middleware,
            Arc::new(move |delivery| Box::pin(handler(delivery))),
            None,
            signals.cut.clone(),
        );
        let spec = PumpSpec {
            endpoint: Arc::clone(&store.endpoint),
            transport: "default",
            settings: self.settings,
            consumer,
            pipeline,
            host: Arc::new(HostScope::default()),
            clock: store.clock.clone(),
            fenced: self.term.as_ref().is_none_or(|(_, fenced)| *fenced),
            term: self.term.map(|(term, _)| term),
            lock_lease: None,
            throttle: Throttle::default(),
            pulse: Pulse::default(),
            runs: Arc::default(),
        };
        Running { pump: Pump::start(spec, signals.clone()), signals }
    }
}

/// A pump that runs.
pub struct Running {
    pub pump: Pump,
    pub signals: Signals,
}

impl Running {
    pub async fn stop(mut self) -> bus::pump::PumpEnd {
        self.signals.stop.cancel();
        self.pump.join().await
    }
}

/// A handler's failure.
pub fn failure() -> Verdict {
    Verdict::Retry { after: None, error: Error::new(ErrorKind::Handler, "it does not work") }
}

/// A consumer whose calls fail as often as its counters say.
pub struct Faulty {
    pub inner: Arc<dyn Consumer>,
    pub receives: AtomicUsize,
    pub settles: AtomicUsize,
    pub extends: AtomicUsize,
    /// What a settlement that fails is answered.
    pub refusal: Error,
}

impl Faulty {
    pub fn new(inner: Arc<dyn Consumer>) -> Faulty {
        Faulty {
            inner,
            receives: AtomicUsize::new(0),
            settles: AtomicUsize::new(0),
            extends: AtomicUsize::new(0),
            refusal: unavailable(),
        }
    }
}

fn fails(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

fn unavailable() -> Error {
    Error::new(ErrorKind::Unavailable, "the store is not there")
}

impl Consumer for Faulty {
    fn receive<'a>(
        &'a self,
        max: usize,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<Delivery>>> {
        if fails(&self.receives) {
            return Box::pin(async { Err(unavailable()) });
        }
        self.inner.receive(max, stop)
    }

    fn extend<'a>(&'a self, receipts: &'a mut [Receipt], lease: Duration) -> BoxFuture<'a, Vec<Result<()>>> {
        if fails(&self.extends) {
            let count = receipts.len();
            return Box::pin(async move { (0..count).map(|_| Err(unavailable())).collect() });
        }
        self.inner.extend(receipts, lease)
    }

    fn settle(&self, settlements: Vec<Settlement>) -> BoxFuture<'_, Vec<Result<()>>> {
        if fails(&self.settles) {
            return Box::pin(async move { settlements.iter().map(|_| Err(self.refusal.clone())).collect() });
        }
        self.inner.settle(settlements)
    }

    fn record_alone<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, Result<()>> {
        self.inner.record_alone(receipt)
    }
}

/// A call of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Receive,
    SecondReceive,
    Settle,
    Extend,
}

/// A consumer that panics in one of its calls.
pub struct Panicking {
    inner: Arc<dyn Consumer>,
    at: Call,
    received: AtomicUsize,
}

impl Panicking {
    pub fn new(inner: Arc<dyn Consumer>, at: Call) -> Panicking {
        Panicking { inner, at, received: AtomicUsize::new(0) }
    }

    fn reached(&self, call: Call) {
        assert_ne!(self.at, call, "on purpose");
    }
}

impl Consumer for Panicking {
    fn receive<'a>(
        &'a self,
        max: usize,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<Delivery>>> {
        self.reached(Call::Receive);
        let is_first = self.received.fetch_add(1, Ordering::SeqCst) == 0;
        Box::pin(async move {
            if !is_first {
                // By then what the first one has brought runs.
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.reached(Call::SecondReceive);
            }
            self.inner.receive(max, stop).await
        })
    }

    fn extend<'a>(&'a self, receipts: &'a mut [Receipt], lease: Duration) -> BoxFuture<'a, Vec<Result<()>>> {
        self.reached(Call::Extend);
        self.inner.extend(receipts, lease)
    }

    fn settle(&self, settlements: Vec<Settlement>) -> BoxFuture<'_, Vec<Result<()>>> {
        self.reached(Call::Settle);
        self.inner.settle(settlements)
    }

    fn record_alone<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, Result<()>> {
        self.inner.record_alone(receipt)
    }
}
