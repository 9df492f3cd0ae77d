#![doc = include_str!("docs.md")]

mod config;
#[cfg(feature = "testing")]
mod control;
mod dead;
mod fence;
mod inspect;
mod lock;
mod queue;
mod readers;
mod store;
mod transport;

use std::sync::Arc;

use crate::contract::{BoxFuture, LockManager, OpenOptions, Reach, Scheme, StoreUrl, Transport};
use crate::error::Result;

use config::Config;
#[cfg(feature = "testing")]
pub(crate) use control::Control;
use lock::MemoryLocks;
use store::Handle;
use transport::MemoryTransport;

inventory::submit! {
    Scheme {
        name: "memory",
        reach: Reach::Process,
        leases: lock::LEASES,
        transport: Some(open_transport),
        locks: Some(open_locks),
    }
}

fn open_transport<'a>(
    url: &'a StoreUrl,
    options: &'a OpenOptions,
) -> BoxFuture<'a, Result<Arc<dyn Transport>>> {
    Box::pin(async move {
        let handle = Handle::open(&Config::from_url(url)?, options);
        Ok(Arc::new(MemoryTransport::new(handle)) as Arc<dyn Transport>)
    })
}

fn open_locks<'a>(
    url: &'a StoreUrl,
    options: &'a OpenOptions,
) -> BoxFuture<'a, Result<Arc<dyn LockManager>>> {
    Box::pin(async move {
        let handle = Handle::open(&Config::from_url(url)?, options);
        Ok(Arc::new(MemoryLocks::new(handle)) as Arc<dyn LockManager>)
    })
}
