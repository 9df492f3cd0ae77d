//! A store whose weather changes: real parts of a real store, which answer as one does that is not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bus::contract::{
    BoxFuture, Capabilities, Consumer, ConsumerSpec, Delay, Ended, FenceClaim, FenceGuard, FenceRow, Fencing,
    Grant, Guarantees, Lease, LockGuarantees, LockId, LockManager, OpenOptions, Outgoing, Owner, Placed,
    Raised, Renewal, Scheme, Sender, Settlement, SqlExecutor, StoreUrl, Transport,
};
use bus::message::{Delivery, Receipt};
use bus::prelude::CancellationToken;
use bus::{Endpoint, Error, ErrorKind, Result};
use tokio::sync::watch;

/// How long a backend waits for a store that does not answer, as the contract demands of it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// What a store does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// It answers.
    Fair,
    /// Nobody is there: it is refused at once.
    Refusing,
    /// It does not answer, and the backend gives up after its deadline.
    Silent,
    /// It does not answer, and the backend has no deadline, against the contract.
    Endless,
    /// The backend panics where nobody expects it: opening a consumer, receiving, and, on the keeper, telling what its locks
    /// promise.
    Panicking,
}

/// Makes the weather, from now on and for what waits already.
#[derive(Clone)]
pub(crate) struct Sky {
    weather: Arc<watch::Sender<Weather>>,
    /// How often something has panicked.
    struck: Arc<AtomicUsize>,
}

impl Sky {
    pub(crate) fn new(weather: Weather) -> Sky {
        Sky { weather: Arc::new(watch::channel(weather).0), struck: Arc::default() }
    }

    pub(crate) fn becomes(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    fn over<T: ?Sized>(&self, inner: Arc<T>) -> Weathered<T> {
        Weathered { inner, sky: self.clone() }
    }

    /// How a call fares that is begun now.
    async fn pass(&self) -> Result<()> {
        let weather = *self.weather.borrow();
        match weather {
            Weather::Fair | Weather::Panicking => Ok(()),
            Weather::Refusing => Err(Error::new(ErrorKind::Unavailable, "connection refused")),
            Weather::Silent => {
                tokio::time::sleep(DEADLINE).await;
                Err(Error::new(ErrorKind::Timeout, "no answer"))
            }
            Weather::Endless => std::future::pending().await,
        }
    }

    /// How often something has panicked.
    pub(crate) fn struck(&self) -> usize {
        self.struck.load(SeqCst)
    }

    /// Panics, in such weather.
    fn strike(&self) {
        if *self.weather.borrow() == Weather::Panicking {
            self.struck.fetch_add(1, SeqCst);
            panic!("on purpose");
        }
    }

    /// Answers with what a call meets that waits when the weather changes.
    async fn breaks<T>(&self) -> Result<T> {
        let mut changes = self.weather.subscribe();
        // The sender is in `self`.
        let _ = changes.wait_for(|weather| *weather != Weather::Fair).await;
        match self.pass().await {
            Err(error) => Err(error),
            Ok(()) => Err(Error::new(ErrorKind::Unavailable, "connection reset")),
        }
    }

    /// The transport at `url`, under this sky.
    pub(crate) async fn transport(&self, url: &str, options: &OpenOptions) -> Weathered<dyn Transport> {
        let url = StoreUrl::parse(url).expect("a URL");
        let open = Scheme::find(url.scheme()).expect("a scheme").transport.expect("it carries messages");
        self.over(open(&url, options).await.expect("it opens"))
    }

    /// The locks at `url`, under this sky.
    pub(crate) async fn locks(&self, url: &str) -> Weathered<dyn LockManager> {
        let url = StoreUrl::parse(url).expect("a URL");
        let open = Scheme::find(url.scheme()).expect("a scheme").locks.expect("it has locks");
        self.over(open(&url, &OpenOptions::default()).await.expect("it opens"))
    }
}

/// Something under a sky.
pub(crate) struct Weathered<T: ?Sized> {
    inner: Arc<T>,
    sky: Sky,
}

impl Transport for Weathered<dyn Transport> {
    fn capabilities(&self) -> Capabilities {
        let mut powers = self.inner.capabilities();
        powers.delay = powers.delay.map(|delay| Arc::new(self.sky.over(delay)) as Arc<dyn Delay>);
        powers.fencing = powers.fencing.map(|fencing| Arc::new(self.sky.over(fencing)) as Arc<dyn Fencing>);
        // Its views are left alone, so that a test can look while nobody else can.
        powers
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn prepare<'a>(&'a self, endpoints: &'a [Endpoint]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.sky.pass().await?;
            self.inner.prepare(endpoints).await
        })
    }

    fn sender(&self) -> Arc<dyn Sender> {
        Arc::new(self.sky.over(self.inner.sender()))
    }

    fn consumer(&self, spec: ConsumerSpec) -> BoxFuture<'_, Result<Arc<dyn Consumer>>> {
        Box::pin(async {
            self.sky.strike();
            self.sky.pass().await?;
            let consumer = self.inner.consumer(spec).await?;
            Ok(Arc::new(self.sky.over(consumer)) as Arc<dyn Consumer>)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

impl Sender for Weathered<dyn Sender> {
    fn send(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Placed>>> {
        Box::pin(async {
            match self.sky.pass().await {
                Ok(()) => self.inner.send(batch).await,
                Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
            }
        })
    }
}

impl Delay for Weathered<dyn Delay> {
    fn cancel<'a>(
        &'a self,
        placed: &'a Placed,
        guard: Option<&'a FenceGuard>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            self.sky.pass().await?;
            self.inner.cancel(placed, guard).await
        })
    }
}

impl Fencing for Weathered<dyn Fencing> {
    fn raise(&self, claim: FenceClaim) -> BoxFuture<'_, Result<Raised>> {
        Box::pin(async {
            self.sky.pass().await?;
            self.inner.raise(claim).await
        })
    }

    fn row<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<FenceRow>>> {
        Box::pin(async {
            self.sky.pass().await?;
            self.inner.row(endpoint).await
        })
    }

    fn check_in<'a>(
        &'a self,
        transaction: &'a mut dyn SqlExecutor,
        guard: &'a FenceGuard,
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.check_in(transaction, guard)
    }
}

impl Consumer for Weathered<dyn Consumer> {
    fn receive<'a>(
        &'a self,
        max: usize,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<Delivery>>> {
        Box::pin(async move {
            self.sky.strike();
            self.sky.pass().await?;
            tokio::select! {
                biased;
                answer = self.inner.receive(max, stop) => answer,
                broken = self.sky.breaks() => broken,
            }
        })
    }

    fn extend<'a>(&'a self, receipts: &'a mut [Receipt], lease: Duration) -> BoxFuture<'a, Vec<Result<()>>> {
        Box::pin(async move {
            match self.sky.pass().await {
                Ok(()) => self.inner.extend(receipts, lease).await,
                Err(error) => receipts.iter().map(|_| Err(error.clone())).collect(),
            }
        })
    }

    fn settle(&self, settlements: Vec<Settlement>) -> BoxFuture<'_, Vec<Result<()>>> {
        Box::pin(async {
            match self.sky.pass().await {
                Ok(()) => self.inner.settle(settlements).await,
                Err(error) => settlements.iter().map(|_| Err(error.clone())).collect(),
            }
        })
    }

    fn record_alone<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.sky.pass().await?;
            self.inner.record_alone(receipt).await
        })
    }
}

impl LockManager for Weathered<dyn LockManager> {
    fn guarantees(&self) -> LockGuarantees {
        if std::thread::current().name() == Some("bus-keeper") {
            self.sky.strike();
        }
        self.inner.guarantees()
    }

    fn initialize(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.sky.pass().await?;
            self.inner.initialize().await
        })
    }

    fn try_lock<'a>(
        &'a self,
        id: &'a LockId,
        lock_lease: Duration,
        owner: Owner,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lease>>>> {
        Box::pin(async move {
            self.sky.pass().await?;
            let lease = self.inner.try_lock(id, lock_lease, owner).await?;
            Ok(lease.map(|lease| Box::new(WeatheredLease { lease, sky: self.sky.clone() }) as Box<dyn Lease>))
        })
    }

    fn give_up<'a>(&'a self, id: &'a LockId, owner: Owner) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.sky.pass().await?;
            self.inner.give_up(id, owner).await
        })
    }
}

struct WeatheredLease {
    lease: Box<dyn Lease>,
    sky: Sky,
}

impl Lease for WeatheredLease {
    fn grant(&self) -> &Grant {
        self.lease.grant()
    }

    fn renew(&self) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(async {
            self.sky.pass().await?;
            self.lease.renew().await
        })
    }

    fn release(&self, ended: Ended) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.sky.pass().await?;
            self.lease.release(ended).await
        })
    }
}
