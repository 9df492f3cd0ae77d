//! Fence rows: which term of a singleton may touch its endpoint. A row lies with the endpoint's messages and is compared
//! inside each script that depends on it.

use std::sync::Arc;
use std::time::Duration;

use super::answer::{fence, items, next, number, text};
use super::client::Client;
use super::error::{Lost, error, unexpected};
use super::script::{FENCE, Invocation, RAISE};
use crate::contract::{
    BoxFuture, ConsumerSpec, Fence, FenceClaim, FenceGuard, FenceRow, Fencing, Raised, SqlExecutor,
};
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;

/// The term that a consumer reads in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) fence: Fence,
    pub(super) lock_lease: Duration,
}

impl Term {
    pub(super) fn of(spec: &ConsumerSpec) -> Option<Self> {
        spec.fence.map(|fence| Term { fence, lock_lease: spec.lock_lease.unwrap_or(spec.lease) })
    }
}

/// A time as scripts know it.
pub(super) fn micros(time: Duration) -> u64 {
    // A century, lest sums leave what the scripts' numbers hold exactly.
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).min(3_155_760_000_000_000)
}

/// An endpoint's row.
pub(super) async fn row(client: &Client, endpoint: &Endpoint) -> Result<Option<FenceRow>> {
    let call = Invocation::new(&FENCE, vec![client.keys.place(endpoint).base]);
    let mut row = items(client.run(&call, Lost::Again).await?)?;
    let Some(lock) = row.next() else { return Ok(None) };
    let (lock, fence) = (text(lock)?, fence(next(&mut row)?)?);
    Ok(Some(FenceRow::new(lock, fence, Duration::from_micros(number(next(&mut row)?)?))))
}

/// The store's fence rows, for a host.
pub(super) struct RedisFencing(pub(super) Arc<Client>);

impl Fencing for RedisFencing {
    fn raise(&self, claim: FenceClaim) -> BoxFuture<'_, Result<Raised>> {
        Box::pin(async move {
            let place = self.0.keys.place(&claim.endpoint);
            let call = Invocation::new(&RAISE, place.keys())
                .with(&claim.lock)
                .with(claim.fence)
                .with(micros(claim.lock_lease))
                .with(place.name());
            let mut answer = items(self.0.run(&call, Lost::Again).await?)?;
            match text(next(&mut answer)?)?.as_str() {
                "raised" => Ok(Raised::Raised),
                "outdated" => Ok(Raised::Outdated { in_force: fence(next(&mut answer)?)? }),
                "other" => {
                    let lock = text(next(&mut answer)?)?;
                    let free_in = Duration::from_micros(number(next(&mut answer)?)?);
                    Ok(Raised::OtherLock { lock, free_in })
                }
                _ => Err(unexpected("no outcome of raising a fence")),
            }
        })
    }

    fn row<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<FenceRow>>> {
        Box::pin(row(&self.0, endpoint))
    }

    fn check_in<'a>(
        &'a self,
        _transaction: &'a mut dyn SqlExecutor,
        _guard: &'a FenceGuard,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(Err(error(
            ErrorKind::Unsupported,
            "Redis takes no SQL: fence your own writes by the number that `Term::fence` gives",
        ))))
    }
}
