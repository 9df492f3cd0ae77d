//! Fence rows: which term of a singleton may touch its endpoint. A row lies in the stream of records; what it decides is
//! enforced by the server, which has one consumer for each term: that of an earlier one is deleted, and with it
//! everything that its holder could still acknowledge.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::client::{Ask, Client};
use super::durable;
use super::error::{Lost, error, term_lost, unexpected};
use super::jetstream::{EXPECTED, Written};
use super::streams::Home;
use crate::clock::{BootInstant, Timestamp};
use crate::contract::{
    BoxFuture, ConsumerSpec, Fence, FenceClaim, FenceGuard, FenceRow, Fencing, Raised, SqlExecutor,
};
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;

/// A row as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    lock: String,
    fence: Fence,
    /// How long it is bound to the lock after it was stored, in microseconds.
    bound: u64,
}

/// A row, its number, and until when it is bound by the server's clock.
#[derive(Clone, Debug)]
pub(super) struct Stood {
    row: Row,
    revision: u64,
    until: Timestamp,
}

impl Stood {
    pub(super) fn fence(&self) -> Fence {
        self.row.fence
    }

    pub(super) fn bound_for(&self, now: Timestamp) -> Duration {
        self.until.since(now)
    }
}

impl Client {
    /// An endpoint's row.
    pub(super) async fn row(&self, endpoint: &Endpoint, until: Instant) -> Result<Option<Stood>> {
        let subject = self.names.fence(endpoint);
        let Some(stored) = self.last_of(&self.names.state(), &subject, until).await? else { return Ok(None) };
        let row: Row = serde_json::from_slice(&stored.data).map_err(|cause| {
            error(ErrorKind::Corrupt, "a fence row cannot be read")
                .with("endpoint", endpoint)
                .caused_by(cause)
        })?;
        let until = stored.time + Duration::from_micros(row.bound);
        Ok(Some(Stood { row, revision: stored.sequence, until }))
    }

    async fn write_row(
        &self,
        endpoint: &Endpoint,
        row: &Row,
        expected: u64,
        until: Instant,
    ) -> Result<Written> {
        let bytes = serde_json::to_vec(row)
            .map_err(|cause| unexpected("a row that cannot be written").caused_by(cause))?;
        let ask = Ask::new(self.names.fence(endpoint), bytes).with(EXPECTED, expected);
        self.write(&Home::State, ask, until, Lost::Again).await
    }

    /// Refuses what is done under a fence that is not in force.
    pub(super) async fn check(&self, guard: &FenceGuard) -> Result<()> {
        let row = self.row(&guard.endpoint, self.deadline()).await?;
        in_force(row, guard.fence).map(drop)
    }
}

fn in_force(row: Option<Stood>, fence: Fence) -> Result<Stood> {
    let found = row.as_ref().map(Stood::fence);
    row.filter(|row| row.fence() == fence).ok_or_else(|| term_lost(fence, found))
}

fn micros(time: Duration) -> u64 {
    // A century: sums stay numbers that a timestamp holds.
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).min(3_155_760_000_000_000)
}

/// The term that a consumer reads in.
#[derive(Debug)]
pub(super) struct Term {
    pub(super) fence: Fence,
    lock_lease: Duration,
    /// When this consumer has bound the row last.
    bound: Mutex<Option<BootInstant>>,
}

impl Term {
    pub(super) fn of(spec: &ConsumerSpec) -> Option<Self> {
        let lock_lease = spec.lock_lease.unwrap_or(spec.lease);
        spec.fence.map(|fence| Term { fence, lock_lease, bound: Mutex::default() })
    }

    /// Refuses if another fence is in force.
    pub(super) async fn check(&self, client: &Client, endpoint: &Endpoint) -> Result<()> {
        in_force(client.row(endpoint, client.deadline()).await?, self.fence).map(drop)
    }

    /// The same; and keeps the row bound to the lock, which takes a write only now and then.
    pub(super) async fn keep(&self, client: &Client, endpoint: &Endpoint) -> Result<()> {
        let until = client.deadline();
        loop {
            let stood = in_force(client.row(endpoint, until).await?, self.fence)?;
            let now = client.clock.now();
            let is_fresh = |bound: &BootInstant| now.since(*bound) < self.lock_lease / 4;
            if self.bound.lock().as_ref().is_some_and(is_fresh) {
                return Ok(());
            }
            let row = Row { bound: micros(self.lock_lease), ..stood.row };
            if client.write_row(endpoint, &row, stood.revision, until).await? != Written::Conflict {
                *self.bound.lock() = Some(now);
                return Ok(());
            }
        }
    }

    /// How long a receive may wait before the row is bound anew.
    pub(super) fn patience(&self) -> Duration {
        self.lock_lease / 2
    }
}

/// The store's fence rows, for a host.
pub(super) struct NatsFencing(pub(super) Arc<Client>);

impl NatsFencing {
    async fn raise_row(&self, claim: &FenceClaim, until: Instant) -> Result<Raised> {
        let row = Row { lock: claim.lock.clone(), fence: claim.fence, bound: micros(claim.lock_lease) };
        loop {
            let stood = self.0.row(&claim.endpoint, until).await?;
            if let Some(stood) = &stood {
                let is_same = stood.row.lock == claim.lock;
                let free_in = match is_same {
                    true => Duration::ZERO,
                    false => stood.bound_for(self.0.server_now(until).await?),
                };
                if !free_in.is_zero() {
                    return Ok(Raised::OtherLock { lock: stood.row.lock.clone(), free_in });
                }
                if claim.fence < stood.fence() || (!is_same && claim.fence == stood.fence()) {
                    return Ok(Raised::Outdated { in_force: stood.fence() });
                }
            }
            let expected = stood.map_or(0, |stood| stood.revision);
            if self.0.write_row(&claim.endpoint, &row, expected, until).await? != Written::Conflict {
                return Ok(Raised::Raised);
            }
        }
    }
}

impl Fencing for NatsFencing {
    fn raise(&self, claim: FenceClaim) -> BoxFuture<'_, Result<Raised>> {
        Box::pin(async move {
            let until = self.0.deadline();
            self.0.prepare(&claim.endpoint, until).await?;
            let raised = self.raise_row(&claim, until).await?;
            if raised != Raised::Raised {
                return Ok(raised);
            }
            durable::end_earlier_terms(&self.0, &claim.endpoint, claim.fence, until).await?;
            Ok(Raised::Raised)
        })
    }

    fn row<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<FenceRow>>> {
        Box::pin(async move {
            let until = self.0.deadline();
            let Some(stood) = self.0.row(endpoint, until).await? else { return Ok(None) };
            let bound_for = stood.bound_for(self.0.server_now(until).await?);
            Ok(Some(FenceRow::new(stood.row.lock.as_str(), stood.fence(), bound_for)))
        })
    }

    fn check_in<'a>(
        &'a self,
        _transaction: &'a mut dyn SqlExecutor,
        _guard: &'a FenceGuard,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(Err(error(
            ErrorKind::Unsupported,
            "NATS takes no SQL: fence your own writes by the number that `Term::fence` gives",
        ))))
    }
}
