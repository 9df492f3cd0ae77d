//! Strict order: one message is in flight at a time, over all processes, and what has been tried before goes first.
//!
//! A message that is to be tried again waits among the delayed ones, marked as such, even if it is due at once: that is
//! how it is told from those that were never tried.

use std::time::Duration;

use super::claim::{Request, lapsed};
use super::row::instant;
use super::transaction::Tx;
use crate::clock::Timestamp;

/// What may be claimed next.
pub(super) enum Gate {
    /// Whatever comes first.
    Open,
    /// This message, which waits among the delayed ones, and no other.
    Tried(i64),
    /// Nothing: something is in flight, or waits for its retry until then.
    Closed(Option<Duration>),
}

impl Gate {
    pub(super) fn of(tx: &Tx<'_>, request: &Request) -> rusqlite::Result<Self> {
        if request.look_for_lapsed && !lapsed(tx, request, 1)?.is_empty() {
            return Ok(Gate::Open);
        }
        let endpoint = request.endpoint;
        tx.statement(include_str!("sql/strict_gate.sql"))?.query_row(
            (endpoint.first(), endpoint.last(), endpoint.0),
            |row| {
                let (in_flight, until): (bool, Option<i64>) = (row.get(0)?, row.get(1)?);
                let (tried, due): (Option<i64>, Option<i64>) = (row.get(2)?, row.get(3)?);
                if in_flight {
                    return Ok(Gate::Closed(until.map(|until| instant(until).since(tx.now))));
                }
                let due_in = due.map(|due| Timestamp::from_micros(due).since(tx.wall));
                Ok(match (tried, due_in) {
                    (Some(id), Some(Duration::ZERO)) => Gate::Tried(id),
                    (Some(_), due_in) => Gate::Closed(due_in),
                    (None, _) => Gate::Open,
                })
            },
        )
    }
}
