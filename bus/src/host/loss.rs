//! The loss of a store, which ends the host: whoever watches over the process sees it, and starts it again.

use std::sync::Arc;

use futures_util::future::{FutureExt, select_all};

use super::start::Running;
use crate::error::Error;

/// Waits until one of the host's stores is lost for good; answers why.
pub(super) async fn of_a_store(running: &Running) -> Error {
    let of_transport =
        running.common.stores.transport_names().map(|name| of_a_transport(running, name).boxed());
    let losses = of_transport.chain([of_locks(running).boxed()]);
    select_all(losses).await.0
}

async fn of_a_transport(running: &Running, name: &str) -> Error {
    match running.common.stores.transport_when_there(name).await {
        Ok(transport) => transport.lost().await.with("transport", name),
        Err(error) => error,
    }
}

async fn of_locks(running: &Running) -> Error {
    let locks = Arc::clone(running.common.stores.locks_when_there().await);
    if let Some(keeper) = &running.keeper
        // Lock managers are called on the keeper only.
        && let Ok(error) = keeper.run(async move { Ok(locks.lost().await) }).await
    {
        return error.with("what", "the lock manager");
    }
    std::future::pending().await
}
