//! The sets of all endpoints and all locks, for people: what a store has, without a walk over all of the server's keys.
//! Nothing else reads them. The scripts that make, attend to and drop what is listed write them.

use redis::Value;

use super::answer::{items, text};
use super::client::Client;
use super::error::error;
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;

/// All endpoints, sorted.
pub(super) async fn endpoints(client: &Client) -> Result<Vec<Endpoint>> {
    let names = members(client.ask(redis::cmd("SMEMBERS").arg(client.keys.endpoints())).await?)?;
    let mut endpoints =
        names.iter().map(|name| Endpoint::parse(name)).collect::<Result<Vec<_>>>().map_err(|e| {
            error(ErrorKind::Corrupt, "the store has an endpoint without a valid name").caused_by(e)
        })?;
    endpoints.sort();
    Ok(endpoints)
}

/// The ids of all locks.
pub(super) async fn locks(client: &Client) -> Result<Vec<String>> {
    members(client.ask(redis::cmd("SMEMBERS").arg(client.keys.locks())).await?)
}

fn members(answer: Value) -> Result<Vec<String>> {
    items(answer)?.map(text).collect()
}
