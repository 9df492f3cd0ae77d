#![doc = include_str!("docs.md")]

mod batch;
mod claim;
mod clocks;
mod config;
mod consumer;
mod error;
#[cfg(feature = "failpoints")]
#[doc(hidden)]
pub mod failpoint;
mod fence;
mod file;
mod gate;
mod inspect;
mod lock;
mod log;
mod opened;
mod place;
mod readers;
mod reserve;
mod row;
mod schema;
mod send;
mod settle;
mod thread;
mod transaction;
mod transport;
mod wake;
mod work;
mod writer;

/// The driver in the version that this backend uses: for [`Term::commit`](crate::Term::commit) on a connection of yours.
pub use rusqlite;

use std::sync::Arc;

use crate::contract::{BoxFuture, LockManager, OpenOptions, Reach, Scheme, StoreUrl, Transport};
use crate::error::Result;

use config::Config;
use lock::SqliteLocks;
use transport::SqliteTransport;

inventory::submit! {
    Scheme {
        name: "sqlite",
        reach: Reach::Machine,
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
        let transport = SqliteTransport::open(Config::from_url(url, options.create)?, options).await;
        let transport = transport.map_err(error::of_opening)?;
        Ok(Arc::new(transport) as Arc<dyn Transport>)
    })
}

fn open_locks<'a>(
    url: &'a StoreUrl,
    options: &'a OpenOptions,
) -> BoxFuture<'a, Result<Arc<dyn LockManager>>> {
    Box::pin(async move {
        let locks = SqliteLocks::open(Config::from_url(url, options.create)?, options).await;
        let locks = locks.map_err(error::of_opening)?;
        Ok(Arc::new(locks) as Arc<dyn LockManager>)
    })
}
