//! Claiming messages.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::error::{Failure, error};
use super::fence::{Term, term_lost};
use super::row::{RawEnvelope, fence_column, fence_from, micros, span};
use super::session::{Param, Session};
use super::statement;
use crate::clock::BootInstant;
use crate::error::{ErrorKind, Result};
use crate::message::{Delivery, Endpoint, Receipt};

/// How many delayed messages become available at once at most.
const DUE_AT_ONCE: i64 = 512;

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) endpoint: i64,
    pub(super) max: i64,
    pub(super) max_bytes: i64,
    pub(super) after: i64,
    /// Names this claim, and no other ever.
    pub(super) token: i64,
    pub(super) lease: Duration,
    pub(super) term: Option<Term>,
    pub(super) strict: bool,
    /// Claims whose answers never came.
    pub(super) lost: Vec<i64>,
}

/// A claim on a message: its id and its token.
pub(super) type ClaimKey = (i64, i64);

/// Claims as two columns, in the order in which every statement takes the rows: in another, two that have some of them
/// in common could wait for each other.
pub(super) fn in_order(mut keys: Vec<ClaimKey>) -> (Vec<i64>, Vec<i64>) {
    keys.sort_unstable();
    keys.into_iter().unzip()
}

/// What a turn has done.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// The claims that were completed.
    pub(super) completed: Vec<ClaimKey>,
    /// What was claimed, in order.
    pub(super) rows: Vec<ClaimedRow>,
    /// Claimed, but past its time to live.
    pub(super) expired: Vec<ClaimKey>,
    /// When, by the server's clock.
    now: i64,
}

impl Turn {
    /// The last message that was claimed.
    pub(super) fn last(&self) -> Option<i64> {
        let expired = self.expired.iter().map(|(id, _)| *id).max();
        self.rows.last().map(|row| row.id).max(expired)
    }

    /// What was claimed for `lease`, and when each claim ends by the server's clock.
    pub(super) fn ends(&self, lease: Duration) -> impl Iterator<Item = (ClaimKey, i64)> {
        let end = self.now.saturating_add(micros(lease));
        self.rows.iter().map(move |row| ((row.id, row.token), end))
    }

    fn take_in(&mut self, row: &Row) -> Result<(), Failure> {
        let now: Option<i64> = row.try_get(0)?;
        let Some(now) = now else {
            let (ids, tokens): (Vec<i64>, Vec<i64>) = (row.try_get(13)?, row.try_get(14)?);
            self.completed.extend(ids.into_iter().zip(tokens));
            return Ok(());
        };
        self.now = now;
        let (id, token): ClaimKey = (row.try_get(1)?, row.try_get(2)?);
        let envelope = RawEnvelope::read(row, 7)?;
        if envelope.is_expired(now) {
            self.expired.push((id, token));
            return Ok(());
        }
        let count = |column| -> Result<u32, Failure> {
            let count: i32 = row.try_get(column)?;
            Ok(u32::try_from(count).unwrap_or(0))
        };
        self.rows.push(ClaimedRow {
            id,
            token,
            envelope,
            deliveries: count(3)?,
            failures: count(4)?,
            crashes: count(5)?,
            crashed_alone: row.try_get(6)?,
        });
        Ok(())
    }
}

/// A message as it lies in the store, with its counts as of this claim.
#[derive(Debug)]
pub(super) struct ClaimedRow {
    id: i64,
    token: i64,
    envelope: RawEnvelope,
    deliveries: u32,
    failures: u32,
    crashes: u32,
    crashed_alone: bool,
}

impl ClaimedRow {
    /// As the pump gets it.
    pub(super) fn into_delivery(self, endpoint: &Arc<Endpoint>, claimed_at: BootInstant) -> Delivery {
        let receipt = Receipt::new(self.id.unsigned_abs(), self.token.unsigned_abs());
        let mut delivery = Delivery::new(self.envelope.into_envelope(), Arc::clone(endpoint), receipt);
        delivery.claimed_at = Some(claimed_at);
        delivery.delivery_count = self.deliveries;
        delivery.failures = self.failures;
        delivery.crashes = self.crashes;
        delivery.crashed_alone = self.crashed_alone;
        delivery
    }
}

/// Completes claims and claims what comes next.
pub(super) async fn turn(
    session: &mut Session,
    request: &Request,
    complete: &[ClaimKey],
) -> Result<Turn, Failure> {
    let (ids, tokens) = in_order(complete.to_vec());
    let fence = request.term.map(|term| fence_column(term.fence));
    let lease = micros(request.lease);
    // In strict order this only completes.
    let max = if request.strict { 0 } else { request.max };
    let mut turn = Turn::default();
    if !(request.strict && complete.is_empty()) {
        let rows = session
            .query(
                &statement::TURN,
                &[
                    &request.endpoint,
                    &ids,
                    &tokens,
                    &max,
                    &request.after,
                    &request.token,
                    &lease,
                    &fence,
                    &request.lost,
                    &request.max_bytes,
                ],
            )
            .await?;
        rows.iter().try_for_each(|row| turn.take_in(row))?;
    }
    if request.strict && request.max > 0 {
        let rows = strict(session, request).await?;
        rows.iter().try_for_each(|row| turn.take_in(row))?;
    }
    turn.rows.sort_by_key(|row| row.id);
    Ok(turn)
}

/// Claims the one message that may come in strict order.
async fn strict(session: &mut Session, request: &Request) -> Result<Vec<Row>, Failure> {
    session.begin().await?;
    let claimed = strict_locked(session, request).await;
    session.end_transaction(claimed).await
}

async fn strict_locked(session: &mut Session, request: &Request) -> Result<Vec<Row>, Failure> {
    if session.query(&statement::STRICT_LOCK, &[&request.endpoint]).await?.is_empty() {
        session.query(&statement::STRICT_OPEN, &[&request.endpoint]).await?;
        session.query(&statement::STRICT_LOCK, &[&request.endpoint]).await?;
    }
    let fence = request.term.map(|term| fence_column(term.fence));
    let lease = micros(request.lease);
    let params: [Param<'_>; 6] =
        [&request.endpoint, &request.after, &request.token, &lease, &fence, &request.lost];
    session.query(&statement::STRICT_CLAIM, &params).await
}

/// What time it is by the server's clock.
pub(super) async fn server_now(session: &mut Session) -> Result<i64, Failure> {
    let rows = session.query(&statement::CLOCK, &[]).await?;
    let row = rows.first().ok_or_else(|| error(ErrorKind::Internal, "the server does not tell the time"))?;
    Ok(row.try_get(0)?)
}

/// Makes available what is due; answers the ids of those.
pub(super) async fn wake_due(session: &mut Session, endpoint: i64) -> Result<Vec<i64>, Failure> {
    let rows = session.query(&statement::WAKE_DUE, &[&endpoint, &DUE_AT_ONCE]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// The first message beyond the first id and up to the second, and how long the server took to find it; `None` if that takes
/// longer than `time`, if one is given.
pub(super) async fn first_within(
    session: &mut Session,
    endpoint: i64,
    (after, last): (i64, i64),
    time: Option<Duration>,
) -> Result<Option<(Option<i64>, Duration)>, Failure> {
    let params: [Param<'_>; 3] = [&endpoint, &after, &last];
    let asked = match time {
        None => session.query(&statement::FLOOR, &params).await,
        Some(time) => {
            session.begin_for(time).await?;
            let asked = session.query(&statement::FLOOR, &params).await;
            session.end_transaction(asked).await
        }
    };
    match asked {
        Ok(rows) => {
            let row = rows.first().ok_or_else(|| error(ErrorKind::Internal, "a look has no answer"))?;
            Ok(Some((row.try_get(0)?, span(row.try_get(1)?))))
        }
        Err(failure) if time.is_some() && failure.refusal() == Some(&SqlState::QUERY_CANCELED) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// What a claim in vain looks at.
pub(super) enum Glance {
    /// The endpoint is not in the store any more, or goes by another number.
    Gone,
    /// In how long something changes by itself.
    NextChange(Option<Duration>),
}

/// Looks why nothing was claimed.
pub(super) async fn glance(
    session: &mut Session,
    request: &Request,
    name: &Endpoint,
) -> Result<Glance, Failure> {
    let name = name.to_string();
    let rows = session
        .query(&statement::GLANCE, &[&request.endpoint, &request.after, &request.term.is_some(), &name])
        .await?;
    let Some(row) = rows.first() else { return Ok(Glance::Gone) };
    if !row.try_get::<_, bool>(0)? {
        return Ok(Glance::Gone);
    }
    if let Some(term) = request.term {
        let in_force: Option<i64> = row.try_get(1)?;
        if in_force != Some(fence_column(term.fence)) {
            return Err(term_lost(term.fence, in_force.map(fence_from)).into());
        }
    }
    let (lapse, due): (Option<i64>, Option<i64>) = (row.try_get(2)?, row.try_get(3)?);
    Ok(Glance::NextChange(lapse.into_iter().chain(due).min().map(span)))
}
