//! Singletons over a store that keeps no fences.

use std::sync::Arc;
use std::time::Duration;

use bus::contract::{
    BoxFuture, Capabilities, Consumer, ConsumerSpec, Guarantees, OpenOptions, Scheme, Sender, Settlement,
    StoreUrl, Transport,
};
use bus::host::config::Config;
use bus::message::{Delivery, Receipt};
use bus::prelude::CancellationToken;
use bus::{Endpoint, Host, Result};
use bus_tests::wait::in_time;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::handlers::{Answer, Relaxed};
use super::{Place, Probe};

/// A store without its fences, which tells for how long claims are made and extended.
struct Unfenced {
    inner: Arc<dyn Transport>,
    leases: UnboundedSender<(&'static str, Duration)>,
}

impl Transport for Unfenced {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.inner.capabilities();
        capabilities.fencing = None;
        capabilities
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn prepare<'a>(&'a self, endpoints: &'a [Endpoint]) -> BoxFuture<'a, Result<()>> {
        self.inner.prepare(endpoints)
    }

    fn sender(&self) -> Arc<dyn Sender> {
        self.inner.sender()
    }

    fn consumer(&self, spec: ConsumerSpec) -> BoxFuture<'_, Result<Arc<dyn Consumer>>> {
        Box::pin(async move {
            let leases = self.leases.clone();
            let _ = leases.send(("claimed", spec.lease));
            let inner = self.inner.consumer(spec).await?;
            Ok(Arc::new(UnfencedConsumer { inner, leases }) as Arc<dyn Consumer>)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

struct UnfencedConsumer {
    inner: Arc<dyn Consumer>,
    leases: UnboundedSender<(&'static str, Duration)>,
}

impl Consumer for UnfencedConsumer {
    fn receive<'a>(
        &'a self,
        max: usize,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<Delivery>>> {
        self.inner.receive(max, stop)
    }

    fn extend<'a>(&'a self, receipts: &'a mut [Receipt], lease: Duration) -> BoxFuture<'a, Vec<Result<()>>> {
        let _ = self.leases.send(("extended", lease));
        self.inner.extend(receipts, lease)
    }

    fn settle(&self, settlements: Vec<Settlement>) -> BoxFuture<'_, Vec<Result<()>>> {
        self.inner.settle(settlements)
    }

    fn record_alone<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, Result<()>> {
        self.inner.record_alone(receipt)
    }
}

/// §5.9: where the store cannot fence, no claim of a singleton outlives its lock, however often it was extended: else a
/// successor would wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_never_lasts_longer_than_the_lock_where_the_store_cannot_fence() {
    const LOCK_LEASE: Duration = Duration::from_secs(1);
    let place = Place::memory();
    let url = StoreUrl::parse(&place.url).expect("a URL");
    let open = Scheme::find("memory").expect("a scheme").transport.expect("it carries messages");
    let inner = open(&url, &OpenOptions::default()).await.expect("it opens");
    let (leases, mut told) = unbounded_channel();
    let (seen, _shown) = unbounded_channel();
    let probe = Probe { seen, answer: Arc::new(|_| Answer::Sleep(LOCK_LEASE)) };
    let mut config = Config::default();
    config.lock_lease = Some(LOCK_LEASE);
    let host = Host::builder()
        .config(config)
        .transport_instance("default", Unfenced { inner, leases })
        .locks_at(&place.url)
        .only(["relaxed"])
        .provide(probe);
    let host = host.build().expect("sound").start().await.expect("it starts");
    host.bus().send(Relaxed("once".into())).await.expect("sent");
    assert_eq!(in_time("a term begins", told.recv()).await, Some(("claimed", LOCK_LEASE)));
    assert_eq!(in_time("the claim is kept alive", told.recv()).await, Some(("extended", LOCK_LEASE)));
    host.stop().await.expect("stopped");
}
