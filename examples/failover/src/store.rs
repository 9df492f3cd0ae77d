//! What is left in the store at the end, read by a client of its own and not through `bus`: a bus that loses
//! messages could as well lose count of them.

#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "azure_storage")]
mod queues;
#[cfg(feature = "redis")]
mod redis;
mod sqlite;

use std::fmt;

use anyhow::{Result, bail};

use crate::stores::Kind;

/// Reads a store.
pub trait Store: fmt::Debug {
    /// The ids of the messages that still wait.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn left(&self) -> Result<Vec<String>>;

    /// The ids of the dead letters.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn dead(&self) -> Result<Vec<String>>;
}

/// The store at a URL; `connection_string` is of the account in Azure, if there is one.
///
/// # Errors
/// When this example cannot read such a store.
#[cfg_attr(not(feature = "azure_storage"), allow(unused_variables, reason = "no other store has an account"))]
pub fn at(kind: Kind, url: &str, connection_string: Option<&str>) -> Result<Box<dyn Store>> {
    match kind {
        Kind::Sqlite => Ok(Box::new(sqlite::Sqlite::at(url))),
        #[cfg(feature = "postgres")]
        Kind::Postgres => Ok(Box::new(postgres::Postgres::at(url)?)),
        #[cfg(feature = "redis")]
        Kind::Redis => Ok(Box::new(redis::Redis::at(url)?)),
        #[cfg(feature = "nats")]
        Kind::Nats => Ok(Box::new(nats::Nats::at(url)?)),
        #[cfg(feature = "azure_storage")]
        Kind::Queues => match connection_string {
            Some(account) => Ok(Box::new(queues::Queues::at(url, account)?)),
            None => bail!("{url} needs a connection string"),
        },
        _ => bail!("{url}: no messages can be read there"),
    }
}
