#![doc = include_str!("docs.md")]

mod config;
mod directory;
mod error;
mod lock;
mod locked;
mod name;
mod place;
mod record;
mod threads;

use std::sync::Arc;

use crate::contract::{BoxFuture, LeaseRange, LockManager, OpenOptions, Reach, Scheme, StoreUrl};
use crate::error::Result;

use config::Config;
use lock::FileLocks;

// The reach is that of the directory, unless the URL says `reach=fleet`.
inventory::submit! {
    Scheme {
        name: "file",
        reach: Reach::Machine,
        leases: LeaseRange::USUAL,
        transport: None,
        locks: Some(open_locks),
    }
}

fn open_locks<'a>(
    url: &'a StoreUrl,
    options: &'a OpenOptions,
) -> BoxFuture<'a, Result<Arc<dyn LockManager>>> {
    Box::pin(async move {
        let locks = FileLocks::open(Config::from_url(url, options.create)?, options).await?;
        Ok(Arc::new(locks) as Arc<dyn LockManager>)
    })
}
