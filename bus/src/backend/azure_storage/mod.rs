#![doc = include_str!("docs.md")]

mod call;
mod client;
mod config;
mod connection_string;
mod credential;
mod error;
mod http;
mod leased_blob;
mod lock;
mod name;
mod queues;
mod record;
mod shared_key;

use std::sync::Arc;

use crate::contract::{BoxFuture, LeaseRange, LockManager, OpenOptions, Reach, Scheme, StoreUrl, Transport};
use crate::error::Result;

use config::{Config, connection_string_of_environment};
pub use lock::BlobLocks;
pub use queues::StorageQueues;

inventory::submit! {
    Scheme { name: "azblob", reach: Reach::Fleet, leases: lock::LEASES, transport: None, locks: Some(open_locks) }
}

inventory::submit! {
    Scheme {
        name: "azqueue",
        reach: Reach::Fleet,
        leases: LeaseRange::USUAL,
        transport: Some(open_transport),
        locks: None,
    }
}

fn open_locks<'a>(
    url: &'a StoreUrl,
    options: &'a OpenOptions,
) -> BoxFuture<'a, Result<Arc<dyn LockManager>>> {
    Box::pin(async move {
        let config = Config::from_url(url, connection_string_of_environment()?.as_deref())?;
        Ok(Arc::new(BlobLocks::open(config, options)?) as Arc<dyn LockManager>)
    })
}

fn open_transport<'a>(
    url: &'a StoreUrl,
    options: &'a OpenOptions,
) -> BoxFuture<'a, Result<Arc<dyn Transport>>> {
    Box::pin(async move {
        let connection_string = connection_string_of_environment()?;
        let config = queues::Config::from_url(url, connection_string.as_deref())?;
        Ok(Arc::new(StorageQueues::open(config, options).await?) as Arc<dyn Transport>)
    })
}
