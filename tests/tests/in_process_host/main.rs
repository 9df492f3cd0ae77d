//! Hosts inside of another program: what `Host::builder()` and its handle promise, over SQLite and in memory.

mod carried;
mod checking;
mod handlers;
mod heard;
#[cfg(unix)]
mod heavy_servers;
mod lifecycle;
mod middleware;
mod order;
mod outage;
mod plugins;
mod scopes;
mod sending;
mod sizes;
mod strange;
mod terms;
mod throttle;
mod unfenced;
mod unread;
mod verdicts;
mod weather;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bus::contract::{DeadLetter, Depth};
use bus::host::{HostBuilder, HostHandle};
use bus::testing::TestHost;
use bus::{Endpoint, Host};
use bus_tests::wait::{PATIENCE, in_time};
use handlers::{Answer, Probe, Seen};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A store of a test's own.
pub(crate) struct Place {
    pub(crate) url: String,
    /// Kept for as long as the store is used.
    _directory: Option<tempfile::TempDir>,
}

impl Place {
    /// A fresh SQLite file, durable as far as the operating system lives.
    pub(crate) fn sqlite() -> Place {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let url = format!("sqlite://{}/bus.db", directory.path().display());
        Place { url, _directory: Some(directory) }
    }

    /// A fresh store in memory.
    pub(crate) fn memory() -> Place {
        Place { url: format!("memory://{}", uuid::Uuid::new_v4()), _directory: None }
    }

    /// One of each.
    pub(crate) fn each() -> [Place; 2] {
        [Place::sqlite(), Place::memory()]
    }

    /// A host over it that reads these endpoints, with its locks in the same place.
    pub(crate) fn host(&self, endpoints: &[&'static str]) -> Made {
        let (seen, shown) = unbounded_channel();
        let probe = Probe { seen, answer: Arc::new(|_: &Seen| Answer::Done) };
        let host = Host::builder().transport("default", &self.url).locks_at("default");
        Made { host: host.only(endpoints.iter().copied()), probe, shown }
    }
}

/// A host that is about to be started.
pub(crate) struct Made {
    host: HostBuilder,
    probe: Probe,
    shown: UnboundedReceiver<Seen>,
}

impl Made {
    /// Says what the handlers are to answer.
    pub(crate) fn answering(mut self, answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Made {
        self.probe.answer = Arc::new(answer);
        self
    }

    /// Answers these, message by message, and then that all is well.
    pub(crate) fn answering_in_turn(self, answers: impl IntoIterator<Item = Answer>) -> Made {
        let answers: VecDeque<Answer> = answers.into_iter().collect();
        let answers = Mutex::new(answers);
        self.answering(move |_| answers.lock().pop_front().unwrap_or(Answer::Done))
    }

    /// Changes the host.
    pub(crate) fn with(mut self, change: impl FnOnce(HostBuilder) -> HostBuilder) -> Made {
        self.host = change(self.host);
        self
    }

    /// Starts it in virtual time, over a store of its own: for what is the same over every store.
    pub(crate) async fn start_virtually(self) -> Virtual {
        let (host, probe) = (self.host, self.probe);
        let host = TestHost::builder().with(|_| host).provide(probe).start().await.expect("it starts");
        Virtual { host, shown: self.shown }
    }

    /// Starts it.
    pub(crate) async fn start(self) -> Embedded {
        let host = self.host.provide(self.probe).build().expect("the wiring is sound");
        let handle = in_time("started", host.start()).await.expect("the host starts");
        Embedded { handle, shown: self.shown }
    }
}

/// A host that runs in virtual time.
pub(crate) struct Virtual {
    pub(crate) host: TestHost,
    shown: UnboundedReceiver<Seen>,
}

impl Virtual {
    /// What handlers have seen that nobody has asked for yet.
    pub(crate) fn seen_so_far(&mut self) -> Vec<Seen> {
        std::iter::from_fn(|| self.shown.try_recv().ok()).collect()
    }
}

/// A host that runs.
pub(crate) struct Embedded {
    pub(crate) handle: HostHandle,
    shown: UnboundedReceiver<Seen>,
}

impl Embedded {
    /// The next message that a handler sees.
    pub(crate) async fn seen(&mut self) -> Seen {
        in_time("a handler sees a message", self.shown.recv()).await.expect("the host runs")
    }

    /// What handlers have seen that nobody has asked for yet.
    pub(crate) fn seen_so_far(&mut self) -> Vec<Seen> {
        std::iter::from_fn(|| self.shown.try_recv().ok()).collect()
    }

    /// How much is where.
    pub(crate) async fn depth(&self, endpoint: &str) -> Depth {
        let endpoint = Endpoint::parse(endpoint).expect("an endpoint");
        let inspect = self.handle.inspect("default").expect("the store can be looked into");
        inspect.depth(&endpoint).await.expect("the store answers")
    }

    /// Waits until it looks as wanted.
    pub(crate) async fn until(&self, what: &str, endpoint: &str, wanted: impl Fn(Depth) -> bool) {
        let reached = async {
            while !wanted(self.depth(endpoint).await) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, reached).await.is_err() {
            panic!("never came to: {what}; it is {:?}", self.depth(endpoint).await);
        }
    }

    /// Waits until nothing is left but dead letters.
    pub(crate) async fn until_drained(&self, endpoint: &str) {
        let drained = |depth: Depth| (depth.ready, depth.in_flight, depth.delayed) == (0, 0, 0);
        self.until("everything is done", endpoint, drained).await;
    }

    /// The dead letters.
    pub(crate) async fn dead(&self, endpoint: &str) -> Vec<DeadLetter> {
        let endpoint = Endpoint::parse(endpoint).expect("an endpoint");
        let inspect = self.handle.inspect("default").expect("the store can be looked into");
        inspect.dead_letters(&endpoint, None, 100).await.expect("the store answers")
    }

    /// Stops it.
    pub(crate) async fn stop(&self) {
        in_time("stopped", self.handle.stop()).await.expect("it stops");
    }
}
