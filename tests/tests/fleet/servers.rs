//! The servers, one of its own for each test, and hosts on them.

use std::time::Duration;

use bus::clock::Clock;
use bus::contract::{LockId, LockRecord, OpenOptions, Scheme, StoreUrl};
use bus_tests::nats::{self, Nats};
use bus_tests::postgres::{self, Database};
use bus_tests::redis::{self, DURABLE, Redis};
use bus_tests::runs::Run;
use bus_tests::site::{Setup, Site};
use bus_tests::skip;
use bus_tests::task::{Single, Task};
use serde_json::json;

/// What the names of these tests begin with, where a server has such names.
const PREFIX: &str = "fleet";
/// Why nothing is done to a server of Postgres here.
const SHARED: &str = "the server of Postgres is shared with other tests";

pub(crate) enum Server {
    Postgres(Database),
    Redis(Redis),
    Nats(Nats),
}

impl Server {
    /// `None` where there is none to be had, which has been said then; a failure with `BUS_TEST_STRICT=1`.
    pub(crate) async fn postgres() -> Option<Server> {
        if !postgres::available() {
            return None;
        }
        Some(Server::Postgres(Database::create().await))
    }

    /// As [`postgres`](Self::postgres).
    pub(crate) fn redis() -> Option<Server> {
        match redis::missing() {
            None => Some(Server::Redis(Redis::start(DURABLE))),
            Some(missing) => none(missing),
        }
    }

    /// As [`postgres`](Self::postgres).
    pub(crate) fn nats() -> Option<Server> {
        match nats::missing() {
            None => Some(Server::Nats(Nats::start())),
            Some(missing) => none(missing),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Server::Postgres(database) => database.url(),
            Server::Redis(redis) => redis.url(PREFIX),
            Server::Nats(nats) => nats.url(PREFIX),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        match self {
            Server::Postgres(database) => database.port(),
            Server::Redis(redis) => redis.port(),
            Server::Nats(nats) => nats.port(),
        }
    }

    /// The store as it is seen through somebody at another port.
    pub(crate) fn url_at(&self, port: u16) -> String {
        self.url().replace(&self.port().to_string(), &port.to_string())
    }

    /// # Panics
    /// On Postgres, whose server other tests use as well: likewise all that is done to a server below.
    pub(crate) fn kill(&self) {
        match self {
            Server::Postgres(_) => panic!("{SHARED}"),
            Server::Redis(redis) => redis.kill(),
            Server::Nats(nats) => nats.kill(),
        }
    }

    pub(crate) fn start_again(&self) {
        match self {
            Server::Postgres(_) => panic!("{SHARED}"),
            Server::Redis(redis) => redis.start_again(),
            Server::Nats(nats) => nats.start_again(),
        }
    }

    pub(crate) fn freeze(&self) {
        match self {
            Server::Postgres(_) => panic!("{SHARED}"),
            Server::Redis(redis) => redis.freeze(),
            Server::Nats(nats) => nats.freeze(),
        }
    }

    pub(crate) fn thaw(&self) {
        match self {
            Server::Postgres(_) => panic!("{SHARED}"),
            Server::Redis(redis) => redis.thaw(),
            Server::Nats(nats) => nats.thaw(),
        }
    }

    /// Removes all that the store consists of, locks included, as an operator might.
    pub(crate) async fn remove_everything(&self) {
        match self {
            Server::Postgres(database) => {
                let client = database.client().await;
                client.batch_execute("DROP SCHEMA bus CASCADE").await.expect("the tables can be removed");
            }
            Server::Redis(redis) => redis.ask::<()>(&["FLUSHALL"]),
            Server::Nats(nats) => {
                let names = nats.ask("STREAM.NAMES", &json!({})).await;
                for stream in names["streams"].as_array().into_iter().flatten() {
                    let stream = stream.as_str().expect("a name");
                    let gone = nats.ask(&format!("STREAM.DELETE.{stream}"), &json!({})).await;
                    assert!(gone["error"].is_null(), "{gone}");
                }
            }
        }
    }

    /// A host that reads the singleton's queue.
    pub(crate) fn host<'s>(&self, site: &'s Site, lease: Duration) -> Setup<'s> {
        site.process(env!("CARGO_BIN_EXE_fixture-actor"))
            .env("BUS_TRANSPORTS__DEFAULT", self.url())
            .env("BUS_LOCKS", "default")
            .env("BUS_LOCK_LEASE", format!("{}s", lease.as_secs()))
            .arg("single")
    }

    pub(crate) async fn send(&self, tasks: impl IntoIterator<Item = Task>) {
        let url = self.url();
        let producer = bus::Host::builder().transport("default", &url).connect().await.expect("a producer");
        for sent in producer.bus().send_all(tasks.into_iter().map(Single)).await {
            sent.expect("sent");
        }
        producer.close().await;
    }

    /// The record of the singleton's lock.
    pub(crate) async fn lock(&self) -> Option<LockRecord> {
        let url = StoreUrl::parse(&self.url()).expect("a URL");
        let open = Scheme::find(url.scheme()).expect("the backend").locks.expect("locks");
        let locks = open(&url, &OpenOptions::new(Clock::system())).await.expect("a lock manager");
        let record = locks.inspect(&LockId::from("queue/single")).await.expect("a record or none");
        locks.close().await;
        record
    }
}

fn none(missing: String) -> Option<Server> {
    skip::not_run(missing);
    None
}

/// Whether a run of the task has come to its end.
pub(crate) fn is_done(runs: &[Run], task: u64) -> bool {
    runs.iter().any(|run| run.m == task && run.how.as_deref() == Some("end"))
}
