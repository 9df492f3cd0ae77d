//! A store on a server of a test's own, and short words for what tests do with it: the same for every kind of server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::Endpoint;
use bus::clock::Clock;
use bus::contract::{
    Consumer, ConsumerSpec, Depth, Fence, FenceClaim, Inspect, LockId, LockManager, OpenOptions, Placed,
    Raised, Scheme, StoreUrl, Transport,
};
use bus::message::Delivery;
use tokio_util::sync::CancellationToken;

use crate::by_hand::{command, endpoint};
use crate::wait::PATIENCE;

/// How long a claim lasts where a test does not care.
pub const LEASE: Duration = Duration::from_secs(30);
/// How long the lock of a term does.
const LOCK_LEASE: Duration = Duration::from_secs(20);
/// What the names of these tests begin with.
pub const PREFIX: &str = "test";

/// A server that a test starts for itself, and does something to.
pub trait Server: Send + Sync + Sized + 'static {
    /// Starts the one that is fastest; `None` where there is none to be had, which has been said then.
    fn quick() -> Option<Self>;

    /// Starts one that keeps what it has acknowledged when its process is killed; `None` likewise.
    fn durable() -> Option<Self>;

    /// The address of a server on this machine, with a prefix for the names.
    fn url_at(port: u16, prefix: &str) -> String;

    /// Its port.
    fn port(&self) -> u16;

    /// Ends it without a word.
    fn kill(&self);

    /// Starts it again on the same port, with what it has on its disk.
    fn start_again(&self);

    /// Freezes it: its connections stay, and nothing is answered.
    fn freeze(&self);

    /// Lets it go on.
    fn thaw(&self);

    /// Its address, with the prefix of these tests.
    fn address(&self) -> String {
        Self::url_at(self.port(), PREFIX)
    }
}

/// A server with a host on it.
pub struct Store<S> {
    /// Where the messages are.
    pub server: Arc<S>,
    /// The host's.
    pub transport: Arc<dyn Transport>,
}

impl<S: Server> Store<S> {
    /// A [quick](Server::quick) server with these endpoints prepared.
    pub async fn with(endpoints: &[&str]) -> Option<Self> {
        Some(Self::on(S::quick()?, endpoints).await)
    }

    /// A [durable](Server::durable) one.
    pub async fn durable(endpoints: &[&str]) -> Option<Self> {
        Some(Self::on(S::durable()?, endpoints).await)
    }

    /// On that server, with these endpoints prepared.
    ///
    /// # Panics
    /// If the server refuses.
    pub async fn on(server: S, endpoints: &[&str]) -> Self {
        let transport = open(&server.address()).await.unwrap();
        let endpoints: Vec<_> = endpoints.iter().map(|name| Endpoint::parse(name).unwrap()).collect();
        transport.prepare(&endpoints).await.unwrap();
        Store { server: Arc::new(server), transport }
    }

    /// A consumer of an endpoint.
    ///
    /// # Panics
    /// If the server refuses.
    pub async fn consumer(&self, endpoint: &str) -> Arc<dyn Consumer> {
        self.consumer_with(ConsumerSpec::new(self::endpoint(endpoint), LEASE)).await
    }

    /// A consumer as it is wanted.
    ///
    /// # Panics
    /// If the server refuses.
    pub async fn consumer_with(&self, spec: ConsumerSpec) -> Arc<dyn Consumer> {
        self.transport.consumer(spec).await.unwrap()
    }

    /// The consumer of a term that begins now: its fence is raised, and so are all its claims' from here on.
    ///
    /// # Panics
    /// If the server refuses.
    pub async fn term(&self, queue: &str, fence: u64) -> Arc<dyn Consumer> {
        let (endpoint, fence) = (endpoint(queue), Fence::new(fence));
        let lock = LockId::from(format!("queue/{queue}").as_str());
        let claim = FenceClaim::new(Arc::clone(&endpoint), "test:", &lock, fence, LOCK_LEASE);
        let raised = self.transport.capabilities().fencing.unwrap().raise(claim).await.unwrap();
        assert_eq!(raised, Raised::Raised);
        self.consumer_with(ConsumerSpec::new(endpoint, LEASE).fenced(fence, LOCK_LEASE)).await
    }

    /// Sends one message.
    ///
    /// # Errors
    /// What the transport answers.
    pub async fn try_send(&self, queue: &str, body: &str) -> bus::Result<Placed> {
        self.transport.sender().send(vec![command(queue, body)]).await.remove(0)
    }

    /// Sends messages with these bodies.
    ///
    /// # Panics
    /// If one is refused.
    pub async fn send(&self, queue: &str, bodies: impl IntoIterator<Item = &str>) {
        let batch = bodies.into_iter().map(|body| command(queue, body)).collect();
        for sent in self.transport.sender().send(batch).await {
            sent.unwrap();
        }
    }

    /// The view for people.
    ///
    /// # Panics
    /// If there is none.
    pub fn inspect(&self) -> Arc<dyn Inspect> {
        self.transport.capabilities().inspect.unwrap()
    }

    /// How much of an endpoint is where.
    ///
    /// # Panics
    /// If the server does not say.
    pub async fn depth(&self, endpoint: &str) -> Depth {
        self.inspect().depth(&Endpoint::parse(endpoint).unwrap()).await.unwrap()
    }

    /// Waits until an endpoint has that depth.
    ///
    /// # Panics
    /// If it does not come to it.
    pub async fn depth_becomes(&self, endpoint: &str, depth: Depth) {
        let begun = Instant::now();
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

/// Opens the transport at that address.
///
/// # Errors
/// What the backend answers.
pub async fn open(url: &str) -> bus::Result<Arc<dyn Transport>> {
    let url = StoreUrl::parse(url)?;
    let open = Scheme::find(url.scheme()).unwrap().transport.unwrap();
    open(&url, &OpenOptions::new(Clock::system())).await
}

/// Opens the locks at that address.
///
/// # Errors
/// What the backend answers.
pub async fn open_locks(url: &str) -> bus::Result<Arc<dyn LockManager>> {
    let url = StoreUrl::parse(url)?;
    let open = Scheme::find(url.scheme()).unwrap().locks.unwrap();
    open(&url, &OpenOptions::new(Clock::system())).await
}

/// What there is, waiting for the first of it.
///
/// # Panics
/// If nothing comes, or an error.
pub async fn receive(consumer: &Arc<dyn Consumer>, max: usize) -> Vec<Delivery> {
    let stop = CancellationToken::new();
    tokio::time::timeout(PATIENCE, consumer.receive(max, &stop)).await.expect("nothing came").unwrap()
}
