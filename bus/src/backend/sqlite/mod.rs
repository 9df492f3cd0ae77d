#![doc = include_str!("docs.md")]

mod claim;
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
mod row;
mod send;
mod settle;
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
    Scheme { name: "sqlite", reach: Reach::Machine, transport: Some(open_transport), locks: Some(open_locks) }
}

fn open_transport<'a>(
    url: &'a StoreUrl,
    options: &'a OpenOptions,
) -> BoxFuture<'a, Result<Arc<dyn Transport>>> {
    Box::pin(async move {
        let transport = SqliteTransport::open(Config::from_url(url)?, options).await?;
        Ok(Arc::new(transport) as Arc<dyn Transport>)
    })
}

fn open_locks<'a>(
    url: &'a StoreUrl,
    options: &'a OpenOptions,
) -> BoxFuture<'a, Result<Arc<dyn LockManager>>> {
    Box::pin(async move {
        let locks = SqliteLocks::open(Config::from_url(url)?, options).await?;
        Ok(Arc::new(locks) as Arc<dyn LockManager>)
    })
}
