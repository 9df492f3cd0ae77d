#![doc = include_str!("docs.md")]

mod answer;
mod body;
mod claim;
mod client;
mod config;
mod consumer;
mod doubts;
mod error;
mod fence;
mod hints;
mod inspect;
mod keys;
mod lock;
mod readers;
mod registry;
mod script;
mod send;
mod server;
mod settle;
mod tls;
mod transport;

use std::sync::Arc;

use crate::contract::{BoxFuture, LeaseRange, LockManager, OpenOptions, Reach, Scheme, StoreUrl, Transport};
use crate::error::Result;

use config::Config;
use lock::RedisLocks;
use transport::RedisTransport;

inventory::submit! {
    scheme("redis")
}

// The same, encrypted.
inventory::submit! {
    scheme("rediss")
}

const fn scheme(name: &'static str) -> Scheme {
    Scheme {
        name,
        reach: Reach::Fleet,
        leases: LeaseRange::USUAL,
        transport: Some(open_transport),
        locks: Some(open_locks),
    }
}

fn open_transport<'a>(
    url: &'a StoreUrl,
    options: &'a OpenOptions,
) -> BoxFuture<'a, Result<Arc<dyn Transport>>> {
    Box::pin(async move {
        let transport = RedisTransport::open(Config::from_url(url)?, options).await?;
        Ok(Arc::new(transport) as Arc<dyn Transport>)
    })
}

fn open_locks<'a>(
    url: &'a StoreUrl,
    options: &'a OpenOptions,
) -> BoxFuture<'a, Result<Arc<dyn LockManager>>> {
    Box::pin(async move {
        let locks = RedisLocks::open(Config::from_url(url)?, options).await?;
        Ok(Arc::new(locks) as Arc<dyn LockManager>)
    })
}
