//! A store that moves messages and shows nothing, and keeps no locks: `blind://`.

use std::sync::Arc;

use bus::contract::{
    BoxFuture, Capabilities, Consumer, ConsumerSpec, Guarantees, LeaseRange, OpenOptions, Reach, Scheme,
    Sender, StoreUrl, Transport,
};
use bus::{Endpoint, Error, ErrorKind, Result};

inventory::submit! {
    Scheme {
        name: "blind",
        reach: Reach::Process,
        leases: LeaseRange::USUAL,
        transport: Some(open),
        locks: None,
    }
}

fn open<'a>(_: &'a StoreUrl, _: &'a OpenOptions) -> BoxFuture<'a, Result<Arc<dyn Transport>>> {
    Box::pin(async { Ok(Arc::new(Blind) as Arc<dyn Transport>) })
}

struct Blind;

struct NoSender;

impl Sender for NoSender {
    fn send(&self, batch: Vec<bus::contract::Outgoing>) -> BoxFuture<'_, Vec<Result<bus::contract::Placed>>> {
        Box::pin(async move { batch.iter().map(|_| Err(unsupported())).collect() })
    }
}

impl Transport for Blind {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new("blind://", Reach::Process, "nothing", 0)
    }

    fn prepare<'a>(&'a self, _: &'a [Endpoint]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Err(unsupported()) })
    }

    fn sender(&self) -> Arc<dyn Sender> {
        Arc::new(NoSender)
    }

    fn consumer(&self, _: ConsumerSpec) -> BoxFuture<'_, Result<Arc<dyn Consumer>>> {
        Box::pin(async { Err(unsupported()) })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn unsupported() -> Error {
    Error::new(ErrorKind::Unsupported, "blind:// does nothing")
}
