//! Ending, extending and marking claims. Everything names the claim: its message and its token.

use std::time::Duration;

use rusqlite::CachedStatement;

use super::error::receipt_lost;
use super::fence::{self, Term};
use super::send;
use super::transaction::{EndpointId, Tx};
use crate::contract::Settlement;
use crate::error::{Error, Result};
use crate::message::{Receipt, Verdict};

/// What the claims of a batch have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claims {
    pub(super) endpoint: EndpointId,
    pub(super) term: Option<Term>,
    /// Whether the consumer reads in strict order.
    pub(super) strict: bool,
}

impl Claims {
    /// Whether the term that they were made in is still on.
    fn check_term(&self, tx: &Tx<'_>) -> rusqlite::Result<Result<()>> {
        match &self.term {
            Some(term) => fence::check(tx, self.endpoint, term.fence),
            None => Ok(Ok(())),
        }
    }

    /// A receipt's two columns; `None` if it is of another endpoint.
    fn columns(&self, receipt: &Receipt) -> Option<(i64, i64)> {
        let id = i64::try_from(receipt.row()).ok().filter(|id| self.endpoint.has(*id))?;
        Some((id, i64::try_from(receipt.claim()).ok()?))
    }
}

/// What a claim has counted, its own delivery included.
struct Counts {
    deliveries: u32,
    failures: u32,
    crashes: u32,
    alone: bool,
    crashed_alone: bool,
}

impl Counts {
    /// Ends the claim; `None` if it is not ours.
    fn take(tx: &Tx<'_>, id: i64, token: i64) -> rusqlite::Result<Option<Self>> {
        let mut statement = tx.statement(include_str!("sql/settle_claim_counts.sql"))?;
        let mut rows = statement.query((id, token))?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let counts = Counts {
            deliveries: row.get(0)?,
            failures: row.get(1)?,
            crashes: row.get(2)?,
            alone: row.get(3)?,
            crashed_alone: row.get(4)?,
        };
        // The row is deleted when the statement has run to its end.
        while rows.next()?.is_some() {}
        Ok(Some(counts))
    }

    /// Counts a failed attempt. Made alone, it has shown that it is not what crashed.
    fn failed(mut self) -> Self {
        self.failures = self.failures.saturating_add(1);
        if self.alone {
            self.crashes = 0;
            self.crashed_alone = false;
        }
        self
    }
}

/// The two statements that nearly every settlement runs, kept at hand from one to the next.
struct Ends<'c> {
    claim: CachedStatement<'c>,
    message: CachedStatement<'c>,
}

impl<'c> Ends<'c> {
    fn at_hand<'e>(ends: &'e mut Option<Self>, tx: &Tx<'c>) -> rusqlite::Result<&'e mut Self> {
        match ends {
            Some(ends) => Ok(ends),
            none => Ok(none.insert(Ends {
                claim: tx.statement(include_str!("sql/settle_claim.sql"))?,
                message: tx.statement(include_str!("sql/message_delete.sql"))?,
            })),
        }
    }

    /// Removes a message whose claim is ours; `false` if it is not.
    fn complete(&mut self, id: i64, token: i64) -> rusqlite::Result<bool> {
        let ours = self.claim.execute((id, token))? == 1;
        if ours {
            self.message.execute([id])?;
        }
        Ok(ours)
    }
}

/// Ends claims, each answered for.
pub(super) fn settle(
    tx: &mut Tx<'_>,
    claims: Claims,
    settlements: &[Settlement],
    max_body: usize,
) -> rusqlite::Result<Vec<Result<()>>> {
    if let Err(lost) = claims.check_term(tx)? {
        return Ok(settlements.iter().map(|_| Err(lost.clone())).collect());
    }
    let mut ends = None;
    let mut answers = Vec::with_capacity(settlements.len());
    for settlement in settlements {
        answers.push(settle_one(tx, &mut ends, claims, settlement, max_body)?);
    }
    Ok(answers)
}

fn settle_one<'c>(
    tx: &mut Tx<'c>,
    ends: &mut Option<Ends<'c>>,
    claims: Claims,
    settlement: &Settlement,
    max_body: usize,
) -> rusqlite::Result<Result<()>> {
    let Some((id, token)) = claims.columns(&settlement.receipt) else { return Ok(Err(receipt_lost())) };
    if let Err(refusal) = admit_outgoing(tx, settlement, id, token, max_body)? {
        return Ok(Err(refusal));
    }
    let endpoint = claims.endpoint;
    if !matches!(settlement.verdict, Verdict::Complete) {
        // Given back, so that the others' use of the same statements finds them compiled.
        *ends = None;
    }
    let ours = match &settlement.verdict {
        Verdict::Complete => Ends::at_hand(ends, tx)?.complete(id, token)?,
        Verdict::Retry { after, error } => retry(tx, endpoint, (id, token), *after, error)?,
        Verdict::DeadLetter { reason, error } => {
            dead_letter(tx, endpoint, (id, token), reason, error.as_ref())?
        }
        Verdict::Release => release(tx, endpoint, id, token)?,
    };
    if !ours {
        return Ok(Err(receipt_lost()));
    }
    if claims.strict {
        // Whatever the verdict: it is the next one's turn.
        tx.touch(endpoint);
    }
    for message in &settlement.outgoing {
        send::store(tx, message)?;
    }
    Ok(Ok(()))
}

/// What is to be sent must be fit to be sent before anything is settled; and a lost claim is said to be just that.
fn admit_outgoing(
    tx: &Tx<'_>,
    settlement: &Settlement,
    id: i64,
    token: i64,
    max_body: usize,
) -> rusqlite::Result<Result<()>> {
    if settlement.outgoing.is_empty() {
        return Ok(Ok(()));
    }
    let held = tx
        .statement(include_str!("sql/claim_holds.sql"))?
        .query_row((id, token), |row| row.get::<_, bool>(0))?;
    if !held {
        return Ok(Err(receipt_lost()));
    }
    for message in &settlement.outgoing {
        if let Err(refusal) = send::admit(tx, message, max_body)? {
            return Ok(Err(refusal));
        }
    }
    Ok(Ok(()))
}

fn retry(
    tx: &mut Tx<'_>,
    endpoint: EndpointId,
    (id, token): (i64, i64),
    after: Option<Duration>,
    error: &Error,
) -> rusqlite::Result<bool> {
    let Some(counts) = Counts::take(tx, id, token)?.map(Counts::failed) else { return Ok(false) };
    let after = after.unwrap_or_default();
    come_back(tx, endpoint, id, &counts, after, Some(&error.with_causes()))?;
    Ok(true)
}

/// Has a message available again after a while, with these counts.
fn come_back(
    tx: &mut Tx<'_>,
    endpoint: EndpointId,
    id: i64,
    counts: &Counts,
    after: Duration,
    error: Option<&str>,
) -> rusqlite::Result<()> {
    tx.touch(endpoint);
    let Counts { deliveries, failures, crashes, crashed_alone, .. } = *counts;
    if after.is_zero() {
        let params = (id, deliveries, failures, crashes, crashed_alone, error);
        return tx.execute(include_str!("sql/message_counts.sql"), params).map(drop);
    }
    let due = (tx.wall + after).as_micros();
    let params = (id, endpoint.0, due, deliveries, failures, crashes, crashed_alone, error);
    tx.execute(include_str!("sql/message_to_delayed.sql"), params)?;
    delete_message(tx, id)
}

fn dead_letter(
    tx: &mut Tx<'_>,
    endpoint: EndpointId,
    (id, token): (i64, i64),
    reason: &str,
    error: Option<&Error>,
) -> rusqlite::Result<bool> {
    let Some(counts) = Counts::take(tx, id, token)? else { return Ok(false) };
    let error = error.map(|error| error.with_causes());
    bury(tx, endpoint, id, counts.deliveries, reason, error.as_deref())?;
    Ok(true)
}

/// Not an attempt: as if it had not been claimed. What crashed before has still crashed.
fn release(tx: &mut Tx<'_>, endpoint: EndpointId, id: i64, token: i64) -> rusqlite::Result<bool> {
    let Some(mut counts) = Counts::take(tx, id, token)? else { return Ok(false) };
    counts.deliveries = counts.deliveries.saturating_sub(1);
    if counts.deliveries == 0 {
        // Its row says so already: nothing was ever counted.
        tx.touch(endpoint);
        tx.execute(include_str!("sql/message_keep.sql"), [id])?;
    } else {
        come_back(tx, endpoint, id, &counts, Duration::ZERO, None)?;
    }
    Ok(true)
}

/// Moves a message to the dead letters. A claim on it, if there is one, is gone with it.
pub(super) fn bury(
    tx: &Tx<'_>,
    endpoint: EndpointId,
    id: i64,
    deliveries: u32,
    reason: &str,
    error: Option<&str>,
) -> rusqlite::Result<()> {
    let now = tx.wall.as_micros();
    tx.execute(include_str!("sql/message_to_dead.sql"), (id, endpoint.0, deliveries, reason, error, now))?;
    tx.execute(include_str!("sql/claim_delete.sql"), [id])?;
    delete_message(tx, id)
}

fn delete_message(tx: &Tx<'_>, id: i64) -> rusqlite::Result<()> {
    tx.execute(include_str!("sql/message_delete.sql"), [id]).map(drop)
}

/// Makes claims last `lease` from now on, each answered for.
pub(super) fn extend(
    tx: &Tx<'_>,
    claims: Claims,
    receipts: &[Receipt],
    lease: Duration,
) -> rusqlite::Result<Vec<Result<()>>> {
    if let Err(lost) = claims.check_term(tx)? {
        return Ok(receipts.iter().map(|_| Err(lost.clone())).collect());
    }
    if let Some(term) = &claims.term {
        term.bind(tx, claims.endpoint)?;
    }
    let (until, boot) = tx.dated(tx.now + lease);
    let mut statement = tx.statement(include_str!("sql/claim_extend.sql"))?;
    let extend_one = |receipt| match claims.columns(receipt) {
        Some((id, token)) => Ok(found(statement.execute((id, token, until, boot))?)),
        None => Ok(Err(receipt_lost())),
    };
    receipts.iter().map(extend_one).collect()
}

/// Records that a claim's run is made alone.
pub(super) fn record_alone(tx: &Tx<'_>, claims: Claims, receipt: &Receipt) -> rusqlite::Result<Result<()>> {
    if let Err(lost) = claims.check_term(tx)? {
        return Ok(Err(lost));
    }
    match claims.columns(receipt) {
        Some(claim) => Ok(found(tx.execute(include_str!("sql/claim_alone.sql"), claim)?)),
        None => Ok(Err(receipt_lost())),
    }
}

fn found(rows: usize) -> Result<()> {
    if rows == 1 { Ok(()) } else { Err(receipt_lost()) }
}
