//! What the tests work with: queues of their own, hosts on them, and proxies before them where they are wanted.

use std::sync::Arc;
use std::time::Duration;

use bus::backend::azure_storage::StorageQueues;
use bus::contract::{Consumer, ConsumerSpec, DeadLetter, Depth, Outgoing, Placed, Transport};
use bus::message::{Delivery, Endpoint};
pub(crate) use bus_emulators::Pattern;
use bus_emulators::sas;
use bus_emulators::{Azurite, FaultProxy, Storage, or_skip};
use bus_tests::by_hand::{command, endpoint};
use bus_tests::wait::in_time;
use tokio_util::sync::CancellationToken;

use crate::raw::Raw;

/// A lease that is over soon: the shortest but one that Azure gives.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// A lease that does not end.
pub(crate) const LONG: Duration = Duration::from_secs(600);
/// How often the tests' consumers ask at the least.
const POLL: Duration = Duration::from_millis(200);

/// Queues that no other test uses.
pub(crate) struct Bench {
    pub(crate) azurite: &'static Storage,
    pub(crate) prefix: String,
    /// What others do, past any proxy.
    pub(crate) raw: Raw,
}

/// A bench, or the end of the test where there is no Azurite.
macro_rules! bench {
    () => {
        match crate::bench::Bench::open() {
            Some(bench) => bench,
            None => return,
        }
    };
}
pub(crate) use bench;

/// A prefix that no other test uses.
pub(crate) fn fresh_prefix() -> String {
    uuid::Uuid::new_v4().simple().to_string().chars().take(16).collect()
}

/// What others do with the queues and blobs of an Azurite.
pub(crate) fn raw(azurite: &Storage) -> Raw {
    let sas = sas::of_services(azurite.account(), azurite.key(), "bq", "rwdlacup");
    Raw::new(azurite.queue_endpoint(), azurite.blob_endpoint(), sas)
}

impl Bench {
    pub(crate) fn open() -> Option<Bench> {
        let azurite = or_skip(Azurite::shared())?;
        Some(Bench { azurite, prefix: fresh_prefix(), raw: raw(azurite) })
    }

    /// The queue of the endpoint of most tests.
    pub(crate) fn queue(&self) -> String {
        format!("{}-q-work", self.prefix)
    }

    pub(crate) fn dead_letters(&self) -> String {
        format!("{}-dl", self.queue())
    }

    pub(crate) fn bodies(&self) -> String {
        format!("{}-bodies", self.prefix)
    }

    /// A proxy before the queues.
    pub(crate) fn proxy(&self) -> FaultProxy {
        FaultProxy::start(self.azurite.queue_endpoint()).expect("a proxy")
    }

    /// A host whose requests go to the queues as they are.
    pub(crate) async fn host(&self) -> Host {
        self.host_with(&self.azurite.connection_string()).await
    }

    /// A host whose requests to the queues go through a proxy.
    pub(crate) async fn host_at(&self, proxy: &FaultProxy) -> Host {
        self.host_with(&self.azurite.connection_string_at(self.azurite.blob_endpoint(), proxy.url())).await
    }

    /// A host whose requests to the blobs go through a proxy.
    pub(crate) async fn host_with_blobs_at(&self, proxy: &FaultProxy) -> Host {
        self.host_with(&self.azurite.connection_string_at(proxy.url(), self.azurite.queue_endpoint())).await
    }

    async fn host_with(&self, connection_string: &str) -> Host {
        let queues = StorageQueues::from_connection_string(connection_string, &self.prefix);
        let transport = Arc::new(queues.expect("it can be used").poll_every(POLL));
        transport.prepare(&[(*endpoint("work")).clone()]).await.expect("prepared");
        Host { transport }
    }
}

/// A host on the queue `work`, by hand.
pub(crate) struct Host {
    pub(crate) transport: Arc<StorageQueues>,
}

impl Host {
    pub(crate) async fn consumer(&self, lease: Duration) -> Arc<dyn Consumer> {
        self.consumer_of("work", lease).await
    }

    pub(crate) async fn consumer_of(&self, name: &str, lease: Duration) -> Arc<dyn Consumer> {
        self.transport.consumer(ConsumerSpec::new(endpoint(name), lease)).await.expect("a consumer")
    }

    pub(crate) async fn try_send(&self, message: Outgoing) -> bus::Result<Placed> {
        self.transport.sender().send(vec![message]).await.remove(0)
    }

    pub(crate) async fn send(&self, body: &str) -> Placed {
        self.try_send(command("work", body)).await.expect("sent")
    }

    pub(crate) async fn depth(&self) -> Depth {
        let inspect = self.transport.capabilities().inspect.expect("it can be looked into");
        inspect.depth(&work()).await.expect("a depth")
    }

    pub(crate) async fn dead(&self) -> Vec<DeadLetter> {
        let inspect = self.transport.capabilities().inspect.expect("it can be looked into");
        inspect.dead_letters(&work(), None, 100).await.expect("dead letters")
    }
}

pub(crate) fn work() -> Endpoint {
    (*endpoint("work")).clone()
}

/// The next message.
pub(crate) async fn next(consumer: &Arc<dyn Consumer>) -> Delivery {
    let receiving = async {
        loop {
            let stop = CancellationToken::new();
            // An error is told once, and waited out by the next call, as a pump's intake does.
            if let Ok(mut deliveries) = consumer.receive(1, &stop).await
                && !deliveries.is_empty()
            {
                return deliveries.remove(0);
            }
        }
    };
    in_time("a message", receiving).await
}

/// Messages being put into a queue.
pub(crate) fn puts() -> Pattern {
    Pattern::any().method("POST").path("/messages")
}

/// Messages being claimed.
pub(crate) fn claims() -> Pattern {
    Pattern::any()
        .method("GET")
        .path("/messages")
        .and("no peek", |request| request.parameter("peekonly").is_none())
}

/// Claims being extended, or ended but for completion.
pub(crate) fn updates() -> Pattern {
    Pattern::any().method("PUT").path("/messages/")
}

/// Messages being deleted.
pub(crate) fn deletes() -> Pattern {
    Pattern::any().method("DELETE").path("/messages/")
}

/// Queues being made.
pub(crate) fn creations() -> Pattern {
    Pattern::any().method("PUT").and("of a queue", |request| {
        request.parameter("comp").is_none() && !request.path.contains("/messages")
    })
}
