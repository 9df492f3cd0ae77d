//! Ending, extending and marking claims. Everything names the claim: its message and its token.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio_postgres::Row;

use super::claim::{ClaimKey, in_order};
use super::error::{Failure, error, receipt_lost};
use super::fence::Term;
use super::row::{fence_column, micros, text_column};
use super::send;
use super::session::Session;
use super::statement;
use crate::contract::Settlement;
use crate::error::{ErrorKind, Result};
use crate::message::{Endpoint, Receipt, Verdict};

/// What the claims of a batch have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claims<'e> {
    pub(super) id: i64,
    pub(super) endpoint: &'e Endpoint,
    pub(super) term: Option<Term>,
}

/// A receipt's two columns; `None` if it cannot be one of ours.
pub(super) fn key(receipt: &Receipt) -> Option<ClaimKey> {
    Some((i64::try_from(receipt.row()).ok()?, i64::try_from(receipt.claim()).ok()?))
}

/// How a claim ends, as the statement knows it.
struct End {
    verdict: i32,
    after: i64,
    reason: Option<String>,
    error: Option<String>,
}

impl End {
    const EXPIRED: End = End { verdict: 4, after: 0, reason: None, error: None };

    fn of(verdict: &Verdict) -> Self {
        let plain = |verdict| End { verdict, after: 0, reason: None, error: None };
        match verdict {
            Verdict::Complete => plain(0),
            Verdict::Retry { after, error } => End {
                after: micros(after.unwrap_or_default()),
                error: Some(text_column(&error.with_causes())),
                ..plain(1)
            },
            Verdict::DeadLetter { reason, error } => End {
                reason: Some(text_column(reason)),
                error: error.as_ref().map(|error| text_column(&error.with_causes())),
                ..plain(2)
            },
            Verdict::Release => plain(3),
        }
    }
}

/// Ends claims, each answered for.
pub(super) async fn settle(
    session: &mut Session,
    claims: Claims<'_>,
    settlements: &[Settlement],
    max_body: usize,
) -> Result<Vec<Result<()>>, Failure> {
    let alone: Vec<&Settlement> = settlements.iter().filter(|one| one.outgoing.is_empty()).collect();
    let ends: Vec<_> =
        alone.iter().filter_map(|one| Some((key(&one.receipt)?, End::of(&one.verdict)))).collect();
    let mut ended = end(session, claims, ends).await?;
    let mut answers = Vec::with_capacity(settlements.len());
    for one in settlements {
        answers.push(if one.outgoing.is_empty() {
            // Taken out, so that the same receipt's second settlement is answered as what it is.
            if key(&one.receipt).is_some_and(|key| ended.remove(&key)) { Ok(()) } else { Err(receipt_lost()) }
        } else {
            settle_and_send(session, claims, one, max_body).await?
        });
    }
    Ok(answers)
}

/// Dead-letters what was claimed past its time to live.
pub(super) async fn bury_expired(
    session: &mut Session,
    claims: Claims<'_>,
    expired: &[ClaimKey],
) -> Result<(), Failure> {
    let ends = expired.iter().map(|key| (*key, End::EXPIRED)).collect();
    end(session, claims, ends).await.map(drop)
}

/// Ends claims; answers which were ours.
async fn end(
    session: &mut Session,
    claims: Claims<'_>,
    mut ends: Vec<(ClaimKey, End)>,
) -> Result<HashSet<ClaimKey>, Failure> {
    // In one statement a row is changed once.
    let mut seen = HashSet::new();
    ends.retain(|(key, _)| seen.insert(*key));
    ends.sort_unstable_by_key(|(key, _)| *key);
    if ends.is_empty() {
        return Ok(HashSet::new());
    }
    let (ids, tokens): (Vec<i64>, Vec<i64>) = ends.iter().map(|(key, _)| *key).unzip();
    let verdicts: Vec<i32> = ends.iter().map(|(_, end)| end.verdict).collect();
    let after: Vec<i64> = ends.iter().map(|(_, end)| end.after).collect();
    let reasons: Vec<Option<&str>> = ends
        .iter()
        .map(
            |(_, end)| {
                if end.verdict == End::EXPIRED.verdict { Some("expired") } else { end.reason.as_deref() }
            },
        )
        .collect();
    let errors: Vec<Option<&str>> = ends.iter().map(|(_, end)| end.error.as_deref()).collect();
    let fence = claims.term.map(|term| fence_column(term.fence));
    let rows = session
        .query(&statement::SETTLE, &[&claims.id, &ids, &tokens, &verdicts, &after, &reasons, &errors, &fence])
        .await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Ends one claim and sends what goes with it, both or nothing.
async fn settle_and_send(
    session: &mut Session,
    claims: Claims<'_>,
    settlement: &Settlement,
    max_body: usize,
) -> Result<Result<()>, Failure> {
    session.begin().await?;
    match try_settle_and_send(session, claims, settlement, max_body).await {
        // Nothing is settled of which something cannot be sent.
        Ok(Err(refusal)) => session.roll_back().await.map(|()| Err(refusal)),
        done => session.end_transaction(done).await,
    }
}

async fn try_settle_and_send(
    session: &mut Session,
    claims: Claims<'_>,
    settlement: &Settlement,
    max_body: usize,
) -> Result<Result<()>, Failure> {
    let ends = key(&settlement.receipt).map(|key| (key, End::of(&settlement.verdict)));
    if end(session, claims, ends.into_iter().collect()).await?.is_empty() {
        return Ok(Err(receipt_lost()));
    }
    for message in &settlement.outgoing {
        if let Err(refusal) = send::admit(message, max_body) {
            return Ok(Err(refusal));
        }
    }
    let sent = send::store(session, &settlement.outgoing).await?;
    Ok(sent.into_iter().collect::<Result<Vec<_>>>().map(drop))
}

/// Makes claims last `lease` from now on, each answered for; and when those that are ours end by the server's clock.
pub(super) async fn extend(
    session: &mut Session,
    claims: Claims<'_>,
    receipts: &[Receipt],
    lease: Duration,
) -> Result<(Vec<Result<()>>, HashMap<ClaimKey, i64>), Failure> {
    let (ids, tokens) = in_order(receipts.iter().filter_map(key).collect());
    let fence = claims.term.map(|term| fence_column(term.fence));
    let rows =
        session.query(&statement::EXTEND, &[&claims.id, &ids, &tokens, &micros(lease), &fence]).await?;
    let read = |row: &Row| Ok(((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?));
    let extended: HashMap<ClaimKey, i64> = rows.iter().map(read).collect::<Result<_, Failure>>()?;
    let found = |receipt| key(receipt).is_some_and(|key| extended.contains_key(&key));
    let answers: Vec<Result<()>> =
        receipts.iter().map(|receipt| if found(receipt) { Ok(()) } else { Err(receipt_lost()) }).collect();
    if answers.iter().any(Result::is_err) {
        check_term(session, claims).await?;
    }
    Ok((answers, extended))
}

/// Records that a claim's run is made alone.
pub(super) async fn record_alone(
    session: &mut Session,
    claims: Claims<'_>,
    receipt: &Receipt,
) -> Result<Result<()>, Failure> {
    let Some((id, token)) = key(receipt) else { return Ok(Err(receipt_lost())) };
    let fence = claims.term.map(|term| fence_column(term.fence));
    if !session.query(&statement::RECORD_ALONE, &[&claims.id, &id, &token, &fence]).await?.is_empty() {
        return Ok(Ok(()));
    }
    check_term(session, claims).await?;
    Ok(Err(receipt_lost()))
}

/// Fails with [`ErrorKind::TermLost`] if the term is over.
pub(super) async fn check_term(session: &mut Session, claims: Claims<'_>) -> Result<(), Failure> {
    match &claims.term {
        Some(term) => term.check(session, claims.endpoint).await,
        None => Ok(()),
    }
}

/// A turn was cut off while it completed claims: whoever asked may ask again.
pub(super) fn cut_off() -> crate::error::Error {
    error(ErrorKind::Unavailable, "the call that carried this was given up: ask again")
}
