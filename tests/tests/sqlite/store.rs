//! A store in a directory of its own, and short words for what the tests do with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bus::Endpoint;
use bus::clock::{Clock, Timestamp};
use bus::contract::{
    Consumer, ConsumerSpec, Fence, FenceClaim, LockId, LockManager, OpenOptions, Outgoing, Placed, Scheme,
    StoreUrl, Transport,
};
use bus::message::Delivery;
pub(crate) use bus_tests::by_hand::{bodies, body, command, endpoint, envelope, receive_now, settle};
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes; only a defect waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// How long a claim lasts where a test does not care.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) struct Store {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) transport: Arc<dyn Transport>,
}

impl Store {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let transport = open(&directory.path().join("bus.db")).await.unwrap();
        Store { directory, transport }
    }

    /// With these endpoints prepared.
    pub(crate) async fn with(endpoints: &[&str]) -> Self {
        let store = Store::new().await;
        store.prepare(endpoints).await;
        store
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("bus.db")
    }

    pub(crate) async fn prepare(&self, endpoints: &[&str]) {
        let endpoints: Vec<_> = endpoints.iter().map(|name| Endpoint::parse(name).unwrap()).collect();
        self.transport.prepare(&endpoints).await.unwrap();
    }

    pub(crate) async fn consumer(&self, endpoint: &str) -> Arc<dyn Consumer> {
        self.consumer_with(ConsumerSpec::new(self::endpoint(endpoint), LEASE)).await
    }

    pub(crate) async fn consumer_with(&self, spec: ConsumerSpec) -> Arc<dyn Consumer> {
        self.transport.consumer(spec).await.unwrap()
    }

    pub(crate) async fn send(&self, queue: &str, bodies: impl IntoIterator<Item = &str>) -> Vec<Placed> {
        let batch = bodies.into_iter().map(|body| command(queue, body)).collect();
        self.transport.sender().send(batch).await.into_iter().map(Result::unwrap).collect()
    }

    /// Raises an endpoint's fence under its usual lock.
    pub(crate) async fn raise(
        &self,
        endpoint: &str,
        fence: u64,
        lock_lease: Duration,
    ) -> bus::contract::Raised {
        let claim = FenceClaim::new(
            self::endpoint(endpoint),
            "sqlite:/here.db",
            &LockId::from("queue/it"),
            Fence::new(fence),
            lock_lease,
        );
        self.transport.capabilities().fencing.unwrap().raise(claim).await.unwrap()
    }

    pub(crate) async fn depth(&self, endpoint: &str) -> bus::contract::Depth {
        let inspect = self.transport.capabilities().inspect.unwrap();
        inspect.depth(&Endpoint::parse(endpoint).unwrap()).await.unwrap()
    }

    pub(crate) async fn dead(&self, endpoint: &str) -> Vec<bus::contract::DeadLetter> {
        let inspect = self.transport.capabilities().inspect.unwrap();
        inspect.dead_letters(&Endpoint::parse(endpoint).unwrap(), None, 1000).await.unwrap()
    }

    /// A connection of the test's own, beside those of the backend.
    pub(crate) fn sql(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.file()).unwrap()
    }
}

/// Another clock than ours, by its number in the store, which has shown so many nanoseconds so far.
pub(crate) fn another_clock(sql: &rusqlite::Connection, seen: Option<i64>) -> i64 {
    let clock = "INSERT INTO bus_boot (name, seen) VALUES (hex(randomblob(8)), ?1) RETURNING id";
    sql.query_row(clock, [seen], |row| row.get(0)).unwrap()
}

pub(crate) fn url(file: &Path) -> StoreUrl {
    StoreUrl::parse(&format!("sqlite://{}", file.display())).unwrap()
}

pub(crate) async fn open(file: &Path) -> bus::Result<Arc<dyn Transport>> {
    open_url(&url(file)).await
}

pub(crate) async fn open_url(url: &StoreUrl) -> bus::Result<Arc<dyn Transport>> {
    let open = Scheme::find("sqlite").unwrap().transport.unwrap();
    open(url, &OpenOptions::new(Clock::system())).await
}

pub(crate) async fn open_locks(file: &Path) -> bus::Result<Arc<dyn LockManager>> {
    let open = Scheme::find("sqlite").unwrap().locks.unwrap();
    open(&url(file), &OpenOptions::new(Clock::system())).await
}

/// A command that was sent so long ago and lives so long.
pub(crate) fn aged(queue: &str, body: &str, age: Duration, live: Duration) -> Outgoing {
    let mut message = command(queue, body);
    let age = i64::try_from(age.as_micros()).unwrap();
    message.envelope.sent_at = Timestamp::from_micros(Clock::system().wall().as_micros() - age);
    message.envelope.time_to_live = Some(live);
    message
}

/// What there is, waiting for the first of it.
pub(crate) async fn receive(consumer: &Arc<dyn Consumer>, max: usize) -> Vec<Delivery> {
    let stop = CancellationToken::new();
    tokio::time::timeout(PATIENCE, consumer.receive(max, &stop)).await.expect("nothing came").unwrap()
}

pub(crate) fn failed() -> bus::Error {
    bus::Error::new(bus::ErrorKind::Handler, "it failed")
}
