//! Fence rows: which term of a singleton may touch its endpoint. Checked within the transaction that depends on it;
//! there is one writer at a time, so that reading the row is locking it.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::OptionalExtension;

use super::error::{error, of_commit, of_statement};
use super::row::{fence_column, fence_from, instant};
use super::transaction::{EndpointId, Tx};
use super::writer::Writer;
use crate::contract::{
    BoxFuture, Fence, FenceClaim, FenceGuard, FenceRow, Fencing, Raised, SqlExecutor, SqlValue,
};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Endpoint;

/// An endpoint's row.
struct Row {
    lock: String,
    fence: Fence,
    until: i64,
    boot: i64,
}

impl Row {
    fn find(tx: &Tx<'_>, endpoint: EndpointId) -> rusqlite::Result<Option<Self>> {
        tx.statement(include_str!("sql/fence_find.sql"))?
            .query_row([endpoint.0], |row| {
                Ok(Row {
                    lock: row.get(0)?,
                    fence: fence_from(row.get(1)?),
                    until: row.get(2)?,
                    boot: row.get(3)?,
                })
            })
            .optional()
    }

    /// How long the row is still its lock's own, at the most.
    fn bound_for(&self, tx: &Tx<'_>) -> rusqlite::Result<Duration> {
        let now = tx.clock(self.boot)?;
        Ok(now.map_or(Duration::ZERO, |now| instant(self.until).since(now)))
    }

    /// Why a claim does not get the row; `None` if it does.
    fn refuses(&self, claim: &FenceClaim, tx: &Tx<'_>) -> rusqlite::Result<Option<Raised>> {
        let same_lock = self.lock == claim.lock;
        let free_in = self.bound_for(tx)?;
        if !same_lock && !free_in.is_zero() {
            return Ok(Some(Raised::OtherLock { lock: self.lock.clone(), free_in }));
        }
        let outdated = if same_lock { claim.fence < self.fence } else { claim.fence <= self.fence };
        Ok(outdated.then_some(Raised::Outdated { in_force: self.fence }))
    }
}

/// The term that a consumer reads in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) fence: Fence,
    pub(super) lock_lease: Duration,
}

impl Term {
    /// Whether the row must be bound to the lock anew before long: a waiting singleton claims in vain, just for that.
    pub(super) fn is_binding_due(&self, tx: &Tx<'_>, endpoint: EndpointId) -> rusqlite::Result<bool> {
        let Some(row) = Row::find(tx, endpoint)? else { return Ok(true) };
        Ok(row.bound_for(tx)? < self.lock_lease / 2)
    }

    /// Keeps the row bound to the lock.
    pub(super) fn bind(&self, tx: &Tx<'_>, endpoint: EndpointId) -> rusqlite::Result<()> {
        let (until, boot) = tx.dated(tx.now + self.lock_lease);
        tx.execute(include_str!("sql/fence_bind.sql"), (endpoint.0, until, boot)).map(drop)
    }
}

/// Whether `fence` is the one in force.
pub(super) fn check(tx: &Tx<'_>, endpoint: EndpointId, fence: Fence) -> rusqlite::Result<Result<()>> {
    Ok(match Row::find(tx, endpoint)? {
        Some(row) if row.fence == fence => Ok(()),
        row => Err(term_lost(fence, row.map(|row| row.fence))),
    })
}

/// Whether the fence of `guard`, if there is one, is in force.
pub(super) fn check_guard(tx: &Tx<'_>, guard: Option<&FenceGuard>) -> rusqlite::Result<Result<()>> {
    let Some(guard) = guard else { return Ok(Ok(())) };
    match tx.find_endpoint(&guard.endpoint)? {
        Some(endpoint) => check(tx, endpoint, guard.fence),
        None => Ok(Err(term_lost(guard.fence, None))),
    }
}

fn term_lost(fence: Fence, in_force: Option<Fence>) -> Error {
    let lost = error(ErrorKind::TermLost, "another fence is in force").with("fence", fence);
    match in_force {
        Some(in_force) => lost.with("in force", in_force),
        None => lost.with("in force", "none"),
    }
}

fn raise(tx: &mut Tx<'_>, claim: &FenceClaim) -> rusqlite::Result<Raised> {
    let endpoint = tx.ensure_endpoint(&claim.endpoint)?;
    if let Some(row) = Row::find(tx, endpoint)?
        && let Some(refusal) = row.refuses(claim, tx)?
    {
        return Ok(refusal);
    }
    let (until, boot) = tx.dated(tx.now + claim.lock_lease);
    tx.execute(
        include_str!("sql/fence_put.sql"),
        (endpoint.0, &claim.lock, fence_column(claim.fence), until, boot),
    )?;
    // A former holder's consumer that waits for messages learns that its term is over.
    tx.touch(endpoint);
    Ok(Raised::Raised)
}

/// The store's fence rows, for a host.
pub(super) struct SqliteFencing(pub(super) Arc<Writer>);

impl Fencing for SqliteFencing {
    fn raise(&self, claim: FenceClaim) -> BoxFuture<'_, Result<Raised>> {
        Box::pin(self.0.write(move |tx| raise(tx, &claim)))
    }

    fn row<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<FenceRow>>> {
        let endpoint = endpoint.clone();
        Box::pin(self.0.read(move |tx| {
            let Some(id) = tx.find_endpoint(&endpoint)? else { return Ok(None) };
            let Some(row) = Row::find(tx, id)? else { return Ok(None) };
            Ok(Some(FenceRow::new(row.lock.as_str(), row.fence, row.bound_for(tx)?)))
        }))
    }

    fn check_in<'a>(
        &'a self,
        transaction: &'a mut dyn SqlExecutor,
        guard: &'a FenceGuard,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let params =
                [SqlValue::Text(guard.endpoint.to_string()), SqlValue::Integer(fence_column(guard.fence))];
            match transaction.execute(include_str!("sql/fence_check_in.sql"), &params).await? {
                0 => Err(term_lost(guard.fence, None)),
                _ => Ok(()),
            }
        })
    }
}

/// The user's own connection to the store's file. A transaction is begun with `BEGIN IMMEDIATE`, since one that has
/// read before it writes may find that it read the past.
impl SqlExecutor for rusqlite::Connection {
    fn execute<'a>(&'a mut self, sql: &'a str, params: &'a [SqlValue]) -> BoxFuture<'a, Result<u64>> {
        let params = params.iter().map(|value| match value {
            SqlValue::Integer(number) => rusqlite::types::Value::from(*number),
            SqlValue::Text(text) => text.clone().into(),
            SqlValue::Blob(bytes) => bytes.clone().into(),
        });
        let changed = rusqlite::Connection::execute(self, sql, rusqlite::params_from_iter(params));
        let failed = if sql == "COMMIT" { of_commit } else { of_statement };
        Box::pin(std::future::ready(changed.map(|rows| rows as u64).map_err(failed)))
    }
}
