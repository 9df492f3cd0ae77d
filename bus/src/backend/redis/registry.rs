//! The sets of all endpoints and all locks, for people: what a store has, without a walk over all of the server's keys.
//! Nothing else reads them.

use redis::Value;

use super::answer::{items, text};
use super::client::Client;
use super::error::error;
use crate::contract::LockId;
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;

/// Takes note of an endpoint that has just been made.
pub(super) async fn add(client: &Client, endpoint: &Endpoint) {
    note(client, client.keys.endpoints(), endpoint.to_string()).await;
}

/// Forgets an endpoint that has been dropped.
pub(super) async fn remove(client: &Client, endpoint: &Endpoint) -> Result<()> {
    let mut command = redis::cmd("SREM");
    client.ask(command.arg(client.keys.endpoints()).arg(endpoint.to_string())).await.map(drop)
}

/// Takes note of a lock that has been taken for the first time.
pub(super) async fn add_lock(client: &Client, id: &LockId) {
    note(client, client.keys.locks(), id.to_string()).await;
}

/// What was done before this has been done: that it is not listed is no reason to call it a failure.
async fn note(client: &Client, set: String, member: String) {
    let mut command = redis::cmd("SADD");
    command.arg(set).arg(&member);
    if let Err(error) = client.ask(&command).await {
        tracing::warn!(name = member, %error, "this will be missing where the store's endpoints and locks are listed");
    }
}

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
