//! Fence rows: which term of a singleton may touch its endpoint. Locked by every statement that depends on it: to see
//! the row as it stands would not be enough, since it may be raised before the statement commits.

use std::sync::Arc;
use std::time::Duration;

use super::error::{Failure, error};
use super::row::{fence_column, fence_from, micros, span};
use super::session::Session;
use super::statement::{self, in_schema};
use super::store::Store;
use super::wake::Topic;
use crate::contract::{
    BoxFuture, Fence, FenceClaim, FenceGuard, FenceRow, Fencing, Raised, SqlExecutor, SqlValue,
};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Endpoint;

/// The term that a consumer reads in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) fence: Fence,
    pub(super) lock_lease: Duration,
}

/// What became of binding a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Bound,
    /// Somebody has it locked, with our fence in force.
    Busy,
}

impl Term {
    /// Keeps the endpoint's row bound to the lock. Waits for nobody.
    pub(super) async fn bind(&self, session: &mut Session, endpoint: i64) -> Result<Bound, Failure> {
        let (fence, lease) = (fence_column(self.fence), micros(self.lock_lease));
        let bound = session.query(&statement::FENCE_BIND, &[&endpoint, &fence, &lease]).await?;
        match bound.first().map(|row| row.try_get(0)).transpose()? {
            Some(true) => Ok(Bound::Bound),
            Some(false) => Ok(Bound::Busy),
            None => Err(term_lost(self.fence, None).into()),
        }
    }

    /// Whether the term is the one in force.
    pub(super) async fn check(&self, session: &mut Session, endpoint: &Endpoint) -> Result<(), Failure> {
        match find(session, endpoint).await? {
            Some(row) if row.fence == self.fence => Ok(()),
            row => Err(term_lost(self.fence, row.map(|row| row.fence)).into()),
        }
    }
}

/// Another term is in force than that of `fence`.
pub(super) fn term_lost(fence: Fence, in_force: Option<Fence>) -> Error {
    let lost = error(ErrorKind::TermLost, "another fence is in force").with("fence", fence);
    match in_force {
        Some(in_force) => lost.with("in force", in_force),
        None => lost,
    }
}

async fn find(session: &mut Session, endpoint: &Endpoint) -> Result<Option<FenceRow>, Failure> {
    let rows = session.query(&statement::FENCE_ROW, &[&endpoint.to_string()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let lock: String = row.try_get(0)?;
    Ok(Some(FenceRow::new(lock, fence_from(row.try_get(1)?), span(row.try_get(2)?))))
}

/// Fails with [`ErrorKind::TermLost`] unless the fence of `guard` is in force.
pub(super) async fn check(store: &Arc<Store>, guard: &FenceGuard) -> Result<(), Failure> {
    match PostgresFencing(Arc::clone(store)).find(&guard.endpoint).await? {
        Some(row) if row.fence == guard.fence => Ok(()),
        row => Err(term_lost(guard.fence, row.map(|row| row.fence)).into()),
    }
}

/// The store's fence rows, for a host.
pub(super) struct PostgresFencing(pub(super) Arc<Store>);

impl PostgresFencing {
    async fn try_raise(&self, claim: &FenceClaim) -> Result<Option<Raised>, Failure> {
        let (endpoint, fence, lease) =
            (claim.endpoint.to_string(), fence_column(claim.fence), micros(claim.lock_lease));
        let raise: [super::session::Param<'_>; 4] = [&endpoint, &claim.lock, &fence, &lease];
        if !self.0.ask(&self.0.durable, &statement::FENCE_RAISE, &raise).await?.is_empty() {
            return Ok(Some(Raised::Raised));
        }
        Ok(match self.find(&claim.endpoint).await? {
            Some(row) if row.lock != claim.lock && !row.bound_for.is_zero() => {
                Some(Raised::OtherLock { lock: row.lock, free_in: row.bound_for })
            }
            Some(row) if claim.fence < row.fence || (row.lock != claim.lock && claim.fence == row.fence) => {
                Some(Raised::Outdated { in_force: row.fence })
            }
            // It has become free just now, or the endpoint is gone.
            _ => None,
        })
    }

    async fn find(&self, endpoint: &Endpoint) -> Result<Option<FenceRow>, Failure> {
        let mut session = self.0.durable.borrow().await?;
        let found = super::pool::within(self.0.config().deadline, find(&mut session, endpoint)).await;
        session.end(found)
    }

    async fn raise(&self, claim: &FenceClaim) -> Result<Raised, Failure> {
        for _ in 0..3 {
            self.0.ensure_endpoints(std::slice::from_ref(&*claim.endpoint)).await?;
            if let Some(raised) = self.try_raise(claim).await? {
                return Ok(raised);
            }
            self.0.forget_endpoints();
        }
        Err(error(ErrorKind::Unavailable, "the fence row changes faster than it can be raised").into())
    }
}

impl Fencing for PostgresFencing {
    fn raise(&self, claim: FenceClaim) -> BoxFuture<'_, Result<Raised>> {
        Box::pin(async move {
            // Raising to the same fence may be repeated.
            let raised = PostgresFencing::raise(self, &claim).await.map_err(Failure::of_repeatable)?;
            // A former holder's consumer that waits for messages learns that its term is over.
            self.0.wake.tell([Topic::Messages(claim.endpoint.target())]);
            Ok(raised)
        })
    }

    fn row<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<FenceRow>>> {
        Box::pin(async move { self.find(endpoint).await.map_err(Failure::of_repeatable) })
    }

    fn check_in<'a>(
        &'a self,
        transaction: &'a mut dyn SqlExecutor,
        guard: &'a FenceGuard,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let sql = in_schema(include_str!("sql/fence_check_in.sql"), &self.0.config().schema);
            let params =
                [SqlValue::Text(guard.endpoint.to_string()), SqlValue::Integer(fence_column(guard.fence))];
            match transaction.execute(&sql, &params).await? {
                0 => Err(term_lost(guard.fence, None)),
                _ => Ok(()),
            }
        })
    }
}
