#![doc = include_str!("docs.md")]

mod claim;
mod config;
mod consumer;
mod doubts;
mod enqueue;
mod error;
mod executor;
mod fence;
mod inspect;
mod lock;
mod pool;
mod pooler;
mod position;
mod readers;
mod row;
mod schema;
mod send;
mod session;
mod settle;
mod statement;
mod store;
#[cfg(feature = "postgres-tls")]
mod tls;
mod transport;
mod wake;

/// The driver in the version that this backend uses: for [`Term::commit`](crate::Term::commit) and
/// [`Bus::send_in`](crate::Bus::send_in) on a transaction of yours.
pub use tokio_postgres;

pub use schema::{grants_script, schema_script};

use std::sync::Arc;

use crate::contract::{BoxFuture, LockManager, OpenOptions, Reach, Scheme, StoreUrl, Transport};
use crate::error::Result;

use config::Config;
use lock::PostgresLocks;
use transport::PostgresTransport;

inventory::submit! {
    scheme("postgres")
}

// How other programs write the same.
inventory::submit! {
    scheme("postgresql")
}

const fn scheme(name: &'static str) -> Scheme {
    Scheme {
        name,
        reach: Reach::Fleet,
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
        let transport = PostgresTransport::open(Config::from_url(url)?, options).await?;
        Ok(Arc::new(transport) as Arc<dyn Transport>)
    })
}

fn open_locks<'a>(
    url: &'a StoreUrl,
    options: &'a OpenOptions,
) -> BoxFuture<'a, Result<Arc<dyn LockManager>>> {
    Box::pin(async move {
        let locks = PostgresLocks::open(Config::from_url(url)?, options).await?;
        Ok(Arc::new(locks) as Arc<dyn LockManager>)
    })
}
