#![doc = include_str!("docs.md")]

mod attention;
mod body;
mod claims;
mod client;
mod config;
mod consumer;
mod counts;
mod dead;
mod delay;
mod durable;
mod ending;
mod error;
mod fence;
mod inspect;
mod jetstream;
mod lock;
mod names;
mod progress;
mod pull;
mod readers;
mod recipients;
mod record;
mod send;
mod server_clock;
mod settle;
mod streams;
mod sweep;
mod transport;

use std::sync::Arc;

use crate::contract::{BoxFuture, LeaseRange, LockManager, OpenOptions, Reach, Scheme, StoreUrl, Transport};
use crate::error::Result;

use config::Config;
use lock::NatsLocks;
use transport::NatsTransport;

inventory::submit! {
    Scheme {
        name: "nats",
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
        let transport = NatsTransport::open(&Config::from_url(url)?, options).await?;
        Ok(Arc::new(transport) as Arc<dyn Transport>)
    })
}

fn open_locks<'a>(
    url: &'a StoreUrl,
    options: &'a OpenOptions,
) -> BoxFuture<'a, Result<Arc<dyn LockManager>>> {
    Box::pin(async move {
        let locks = NatsLocks::open(&Config::from_url(url)?, options).await?;
        Ok(Arc::new(locks) as Arc<dyn LockManager>)
    })
}
