//! The keys of the queue in Redis, read by redis-rs.

use anyhow::{Context, Result};
use redis::{Client, Commands};
use uuid::Uuid;

use super::Store;
use crate::stores::parameters;

/// What keys begin with, unless the URL says otherwise.
const PREFIX: &str = "bus";
/// Where a message's id stands in its bytes.
const ID: std::ops::Range<usize> = 25..41;

/// A reader of the keys.
#[derive(Debug)]
pub(super) struct Redis {
    client: Client,
    queue: String,
}

impl Redis {
    /// The keys whose prefix the URL names. Its other parameters are the bus's own.
    pub(super) fn at(url: &str) -> Result<Self> {
        let prefix = parameters(url).find_map(|(name, value)| (name == "prefix").then_some(value));
        let queue = format!("{}:{{q/failover}}:", prefix.unwrap_or(PREFIX));
        Ok(Self { client: Client::open(url.split('?').next().unwrap_or(url))?, queue })
    }
}

fn id_of(message: &[u8]) -> Result<String> {
    let id = message.get(ID).context("a message is too short to have an id")?;
    Ok(Uuid::from_slice(id)?.to_string())
}

impl Store for Redis {
    /// Messages that were never claimed, as they are, and those that are numbered: claimed, waiting again, or delayed.
    fn left(&self) -> Result<Vec<String>> {
        let mut connection = self.client.get_connection()?;
        let ready: Vec<Vec<u8>> = connection.lrange(format!("{}ready", self.queue), 0, -1)?;
        let numbered: Vec<Vec<u8>> = connection.hvals(format!("{}body", self.queue))?;
        ready.iter().chain(&numbered).map(|message| id_of(message)).collect()
    }

    fn dead(&self) -> Result<Vec<String>> {
        let mut connection = self.client.get_connection()?;
        let ids: Vec<Vec<u8>> = connection.hkeys(format!("{}buried", self.queue))?;
        ids.iter().map(|id| Ok(Uuid::from_slice(id)?.to_string())).collect()
    }
}
