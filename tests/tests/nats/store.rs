//! A server with a host on it, and short words for what the tests do with them.

use std::sync::Arc;
use std::time::Duration;

use bus::Endpoint;
use bus::clock::Clock;
use bus::contract::{
    Consumer, ConsumerSpec, Depth, Fence, FenceClaim, Inspect, LockId, LockManager, OpenOptions, Placed,
    Raised, Scheme, StoreUrl, Transport,
};
use bus::message::Delivery;
pub(crate) use bus_tests::by_hand::{bodies, body, command, endpoint, envelope, receive_now, settle};
use bus_tests::nats::{self, Nats};
use bus_tests::skip;
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes; only a defect waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a claim lasts where a test does not care.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// What the names of these tests begin with.
pub(crate) const PREFIX: &str = "test";

pub(crate) struct Store {
    pub(crate) server: Arc<Nats>,
    pub(crate) transport: Arc<dyn Transport>,
}

/// A server; `None` where there is none to be had, which has been said then.
///
/// # Panics
/// With `BUS_TEST_STRICT=1`, if there is none.
pub(crate) fn server() -> Option<Nats> {
    match nats::missing() {
        None => Some(Nats::start()),
        Some(missing) => {
            skip::not_run(missing);
            None
        }
    }
}

impl Store {
    /// A server with these endpoints prepared.
    pub(crate) async fn with(endpoints: &[&str]) -> Option<Self> {
        Self::on(server()?, endpoints).await
    }

    async fn on(server: Nats, endpoints: &[&str]) -> Option<Self> {
        let transport = open(&server.url(PREFIX)).await.unwrap();
        let endpoints: Vec<_> = endpoints.iter().map(|name| Endpoint::parse(name).unwrap()).collect();
        transport.prepare(&endpoints).await.unwrap();
        Some(Store { server: Arc::new(server), transport })
    }

    pub(crate) async fn consumer(&self, endpoint: &str) -> Arc<dyn Consumer> {
        self.consumer_with(ConsumerSpec::new(self::endpoint(endpoint), LEASE)).await
    }

    pub(crate) async fn consumer_with(&self, spec: ConsumerSpec) -> Arc<dyn Consumer> {
        self.transport.consumer(spec).await.unwrap()
    }

    /// A consumer for the term of that fence.
    pub(crate) async fn term(&self, queue: &str, fence: u64) -> Arc<dyn Consumer> {
        let (fence, lock) = (Fence::new(fence), LockId::from(format!("queue/{queue}").as_str()));
        let claim = FenceClaim::new(endpoint(queue), "test:", &lock, fence, LEASE);
        let raised = self.transport.capabilities().fencing.unwrap().raise(claim).await.unwrap();
        assert_eq!(raised, Raised::Raised);
        self.consumer_with(ConsumerSpec::new(endpoint(queue), LEASE).fenced(fence, LEASE)).await
    }

    pub(crate) async fn try_send(&self, queue: &str, body: &str) -> bus::Result<Placed> {
        self.transport.sender().send(vec![command(queue, body)]).await.remove(0)
    }

    pub(crate) async fn send(&self, queue: &str, bodies: impl IntoIterator<Item = &str>) {
        let batch = bodies.into_iter().map(|body| command(queue, body)).collect();
        for sent in self.transport.sender().send(batch).await {
            sent.unwrap();
        }
    }

    pub(crate) fn inspect(&self) -> Arc<dyn Inspect> {
        self.transport.capabilities().inspect.unwrap()
    }

    pub(crate) async fn depth(&self, endpoint: &str) -> Depth {
        self.inspect().depth(&Endpoint::parse(endpoint).unwrap()).await.unwrap()
    }

    /// Waits until an endpoint has that depth.
    pub(crate) async fn depth_becomes(&self, endpoint: &str, depth: Depth) {
        let begun = std::time::Instant::now();
        loop {
            let now = self.depth(endpoint).await;
            if now == depth {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "the depth is {now:?}, and not {depth:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) async fn open(url: &str) -> bus::Result<Arc<dyn Transport>> {
    let url = StoreUrl::parse(url).unwrap();
    let open = Scheme::find(url.scheme()).unwrap().transport.unwrap();
    open(&url, &OpenOptions::new(Clock::system())).await
}

pub(crate) async fn open_locks(url: &str) -> bus::Result<Arc<dyn LockManager>> {
    let url = StoreUrl::parse(url).unwrap();
    let open = Scheme::find(url.scheme()).unwrap().locks.unwrap();
    open(&url, &OpenOptions::new(Clock::system())).await
}

/// What there is, waiting for the first of it.
pub(crate) async fn receive(consumer: &Arc<dyn Consumer>, max: usize) -> Vec<Delivery> {
    let stop = CancellationToken::new();
    tokio::time::timeout(PATIENCE, consumer.receive(max, &stop)).await.expect("nothing came").unwrap()
}
