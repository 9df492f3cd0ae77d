//! The loss of a store, or of a part of the host, which ends it: whoever watches over the process sees it, and starts it
//! again.

use std::sync::Arc;

use futures_util::future::{FutureExt, select_all};
use tokio::task::JoinSet;

use super::start::Common;
use crate::error::{Error, ErrorKind};
use crate::pump::PumpEnd;
use crate::singleton::Keeper;

/// Waits until one of the host's stores is lost for good; answers why.
pub(super) async fn of_a_store(common: &Common, keeper: Option<&Keeper>) -> Error {
    let of_transport = common.stores.transport_names().map(|name| of_a_transport(common, name).boxed());
    let losses = of_transport.chain([of_locks(common, keeper).boxed()]);
    select_all(losses).await.0
}

/// Waits until something that was to run until the host stops has panicked: nobody would do any more what it did.
pub(super) async fn of_a_part(runners: &mut JoinSet<PumpEnd>) -> Error {
    loop {
        match runners.join_next().await {
            Some(Ok(_)) => {}
            Some(Err(cause)) => {
                let what =
                    "a part of the host panicked, which is a defect: report what it said, and start again";
                return Error::new(ErrorKind::Internal, what).caused_by(cause);
            }
            None => std::future::pending().await,
        }
    }
}

async fn of_a_transport(common: &Common, name: &str) -> Error {
    match common.stores.transport_when_there(name).await {
        Ok(transport) => transport.lost().await.with("transport", name),
        Err(error) => error,
    }
}

async fn of_locks(common: &Common, keeper: Option<&Keeper>) -> Error {
    let locks = Arc::clone(common.stores.locks_when_there().await);
    if let Some(keeper) = keeper
        // Lock managers are called on the keeper only.
        && let Ok(error) = keeper.run(async move { Ok(locks.lost().await) }).await
    {
        return error.with("what", "the lock manager");
    }
    std::future::pending().await
}
