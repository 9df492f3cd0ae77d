//! Claiming messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rusqlite::Row;
use tokio::sync::oneshot;

use super::error::error;
use super::fence::{self, Term};
use super::row::{RawEnvelope, fence_column, instant, nanos};
use super::settle;
use super::transaction::{EndpointId, Tx};
use super::work::{Work, not_run};
use crate::clock::{BootInstant, Timestamp};
use crate::error::{ErrorKind, Result};
use crate::message::{Delivery, Endpoint, Receipt};

/// How many delayed messages become available in one claim's transaction at most.
const DUE_AT_ONCE: usize = 512;
/// How many expired messages are buried in one claim's transaction at most.
const EXPIRED_AT_ONCE: usize = 512;

/// What a consumer asks for.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) endpoint: EndpointId,
    pub(super) max: usize,
    pub(super) max_bytes: usize,
    pub(super) lease: Duration,
    pub(super) term: Option<Term>,
    pub(super) strict: bool,
    /// Below and at this id there is nothing but what is in flight.
    pub(super) after: i64,
    /// Whether to look for claims that nobody keeps any more.
    pub(super) look_for_lapsed: bool,
    /// Names this claim, and no other ever.
    pub(super) token: i64,
}

/// What a consumer gets.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    pub(super) rows: Vec<ClaimedRow>,
    /// From when on the claims last.
    pub(super) at: Option<BootInstant>,
    /// Whether there was less than asked for, so that nothing is left but what is in flight.
    pub(super) short: bool,
    /// Up to which id everything is in flight now.
    pub(super) up_to: i64,
    /// When something becomes available by itself, if nothing was.
    pub(super) next_change: Option<Duration>,
}

/// A message as it lies in the store, with its counts as of this claim.
#[derive(Debug)]
pub(super) struct ClaimedRow {
    id: i64,
    envelope: RawEnvelope,
    deliveries: u32,
    failures: u32,
    crashes: u32,
    crashed_alone: bool,
}

impl ClaimedRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(ClaimedRow {
            id: row.get(0)?,
            envelope: RawEnvelope::read(row, 1, 10)?,
            deliveries: row.get::<_, u32>(6)?.saturating_add(1),
            failures: row.get(7)?,
            crashes: row.get(8)?,
            crashed_alone: row.get(9)?,
        })
    }

    /// As the pump gets it.
    pub(super) fn into_delivery(
        self,
        endpoint: &Arc<Endpoint>,
        token: i64,
        claimed_at: Option<BootInstant>,
    ) -> Delivery {
        let receipt = Receipt::new(self.id.unsigned_abs(), token.unsigned_abs());
        let mut delivery = Delivery::new(self.envelope.into_envelope(), Arc::clone(endpoint), receipt);
        delivery.claimed_at = claimed_at;
        delivery.delivery_count = self.deliveries;
        delivery.failures = self.failures;
        delivery.crashes = self.crashes;
        delivery.crashed_alone = self.crashed_alone;
        delivery
    }
}

/// Claims what there is.
fn claim(tx: &mut Tx<'_>, request: &Request) -> rusqlite::Result<Result<Claimed>> {
    if let Some(term) = &request.term {
        if let Err(lost) = fence::check(tx, request.endpoint, term.fence)? {
            return Ok(Err(lost));
        }
        term.bind(tx, request.endpoint)?;
    }
    wake_delayed(tx, request.endpoint)?;
    if request.strict && is_held_back(tx, request)? {
        return nothing(tx, request).map(Ok);
    }
    let mut claimed = take(tx, request, request.after)?;
    if claimed.rows.is_empty() && request.after > request.endpoint.first() {
        claimed = take(tx, request, request.endpoint.first())?;
    }
    Ok(if claimed.rows.is_empty() { Ok(nothing(tx, request)?) } else { Ok(claimed) })
}

/// Makes available what is due: a retry in its own place, anything else behind what is there already. In strict order
/// nothing can thus come before a message that has been begun.
fn wake_delayed(tx: &mut Tx<'_>, endpoint: EndpointId) -> rusqlite::Result<()> {
    let due: Vec<(i64, bool)> = tx
        .statement(include_str!("sql/delayed_due.sql"))?
        .query_map((endpoint.0, tx.wall.as_micros()), |row| Ok((row.get(0)?, row.get(1)?)))?
        .take(DUE_AT_ONCE)
        .collect::<rusqlite::Result<_>>()?;
    for (id, retry) in &due {
        let place = if *retry { *id } else { endpoint.first() | tx.next_number()? };
        tx.execute(include_str!("sql/delayed_to_ready.sql"), (id, place))?;
        tx.execute(include_str!("sql/delayed_delete.sql"), [id])?;
    }
    if due.len() > 1 {
        // More than we may take: others want to know.
        tx.touch(endpoint);
    }
    Ok(())
}

fn is_held_back(tx: &Tx<'_>, request: &Request) -> rusqlite::Result<bool> {
    if request.look_for_lapsed && !lapsed(tx, request, Room::OF_ONE)?.is_empty() {
        return Ok(false);
    }
    let endpoint = request.endpoint;
    tx.statement(include_str!("sql/strict_gate.sql"))?
        .query_row((endpoint.first(), endpoint.last(), endpoint.0), |row| row.get(0))
}

fn take(tx: &Tx<'_>, request: &Request, after: i64) -> rusqlite::Result<Claimed> {
    let mut claimed = Claimed { up_to: after, at: Some(tx.now), ..Claimed::default() };
    let mut expired = 0;
    if request.look_for_lapsed {
        let rows = lapsed(tx, request, Room::left(request, &claimed))?;
        expired += keep(tx, request, rows, &mut claimed.rows)?;
    }
    while expired < EXPIRED_AT_ONCE && !claimed.short {
        let room = Room::left(request, &claimed);
        if room.is_used_up() {
            break;
        }
        let (rows, ended) = ready(tx, request.endpoint, claimed.up_to, room)?;
        claimed.short = ended;
        claimed.up_to = rows.last().map_or(claimed.up_to, |row| row.id);
        expired += keep(tx, request, rows, &mut claimed.rows)?;
    }
    Ok(claimed)
}

/// What may still be claimed.
#[derive(Clone, Copy, Debug)]
struct Room {
    messages: usize,
    bytes: usize,
}

impl Room {
    const OF_ONE: Room = Room { messages: 1, bytes: 1 };

    /// The first message is claimed however large it is.
    fn left(request: &Request, claimed: &Claimed) -> Self {
        let max = if request.strict { 1 } else { request.max };
        let has: usize = claimed.rows.iter().map(|row| row.envelope.bytes()).sum();
        let bytes = request.max_bytes.saturating_sub(has);
        Room {
            messages: max.saturating_sub(claimed.rows.len()),
            bytes: if claimed.rows.is_empty() { bytes.max(1) } else { bytes },
        }
    }

    fn is_used_up(self) -> bool {
        self.messages == 0 || self.bytes == 0
    }

    /// Reads rows until there are enough; the second answer is whether there were no more.
    fn fill(
        &mut self,
        rows: impl Iterator<Item = rusqlite::Result<ClaimedRow>>,
    ) -> rusqlite::Result<(Vec<ClaimedRow>, bool)> {
        let mut read = Vec::new();
        for row in rows {
            let row = row?;
            self.messages = self.messages.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(row.envelope.bytes());
            read.push(row);
            if self.is_used_up() {
                return Ok((read, false));
            }
        }
        Ok((read, true))
    }
}

/// Claims that nobody keeps any more, each by the clock of whoever has made it.
fn lapsed(tx: &Tx<'_>, request: &Request, mut room: Room) -> rusqlite::Result<Vec<ClaimedRow>> {
    let (first, last) = (request.endpoint.first(), request.endpoint.last());
    let fence = request.term.map(|term| fence_column(term.fence));
    let mut others = tx.statement(include_str!("sql/claim_boots.sql"))?;
    let others: Vec<i64> =
        others.query_map((first, last, tx.boot), |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let mut statement = tx.statement(include_str!("sql/claim_lapsed.sql"))?;
    let mut found: Vec<ClaimedRow> = Vec::new();
    for boot in std::iter::once(tx.boot).chain(others) {
        if room.is_used_up() {
            break;
        }
        let now = tx.clock(boot)?.map_or(i64::MAX, nanos);
        // An earlier term's are found with our own, whichever clock they have.
        let fence = fence.filter(|_| boot == tx.boot);
        let rows = statement.query_map((first, last, boot, now, fence), ClaimedRow::read)?;
        found.extend(room.fill(rows)?.0);
    }
    found.sort_unstable_by_key(|row| row.id);
    // An earlier term's may have run out as well.
    found.dedup_by_key(|row| row.id);
    Ok(found)
}

fn ready(
    tx: &Tx<'_>,
    endpoint: EndpointId,
    after: i64,
    mut room: Room,
) -> rusqlite::Result<(Vec<ClaimedRow>, bool)> {
    let mut statement = tx.statement(include_str!("sql/claim_ready.sql"))?;
    room.fill(statement.query_map((after, endpoint.last()), ClaimedRow::read)?)
}

/// Records the claims on `found`, but for what has expired: that is buried, and counted in the answer.
fn keep(
    tx: &Tx<'_>,
    request: &Request,
    found: Vec<ClaimedRow>,
    kept: &mut Vec<ClaimedRow>,
) -> rusqlite::Result<usize> {
    let mut put = tx.statement(include_str!("sql/claim_put.sql"))?;
    let (until, boot) = tx.dated(tx.now + request.lease);
    let fence = request.term.map(|term| fence_column(term.fence));
    let mut expired = 0;
    for row in found {
        if row.envelope.is_expired(tx.wall) {
            settle::bury(tx, request.endpoint, row.id, row.deliveries - 1, "expired", None)?;
            expired += 1;
            continue;
        }
        put.execute((
            row.id,
            request.token,
            until,
            boot,
            fence,
            row.deliveries,
            row.failures,
            row.crashes,
            row.crashed_alone,
        ))?;
        kept.push(row);
    }
    Ok(expired)
}

/// What a claim would find, by reading alone.
struct Glance {
    ready: bool,
    lapsed: bool,
    next_lapse: Option<i64>,
    next_due: Option<i64>,
}

impl Glance {
    fn take(tx: &Tx<'_>, request: &Request) -> rusqlite::Result<Self> {
        let endpoint = request.endpoint;
        let fence = request.term.map(|term| fence_column(term.fence));
        let params = (endpoint.first(), endpoint.last(), tx.boot, nanos(tx.now), fence, endpoint.0);
        let mut glance = tx.statement(include_str!("sql/glance.sql"))?.query_row(params, |row| {
            Ok(Glance {
                ready: row.get(0)?,
                lapsed: row.get(1)?,
                next_lapse: row.get(2)?,
                next_due: row.get(3)?,
            })
        })?;
        if glance.lapsed && lapsed(tx, request, Room::OF_ONE)?.is_empty() {
            // What others show is known from below only: whoever waits for them looks again.
            (glance.lapsed, glance.next_lapse) = (false, None);
        }
        Ok(glance)
    }

    fn is_due(&self, tx: &Tx<'_>) -> bool {
        self.next_due.is_some_and(|due| due <= tx.wall.as_micros())
    }

    fn next_change(&self, tx: &Tx<'_>) -> Option<Duration> {
        let lapse = self.next_lapse.map(|until| instant(until).since(tx.now));
        let due = self.next_due.map(|due| Timestamp::from_micros(due).since(tx.wall));
        lapse.into_iter().chain(due).min()
    }
}

/// An empty answer, with the time to look again.
fn nothing(tx: &Tx<'_>, request: &Request) -> rusqlite::Result<Claimed> {
    let next_change = Glance::take(tx, request)?.next_change(tx);
    Ok(Claimed { rows: Vec::new(), at: None, short: true, up_to: request.endpoint.first(), next_change })
}

/// Whether an endpoint has not been dropped.
fn is_there(tx: &Tx<'_>, endpoint: EndpointId) -> rusqlite::Result<bool> {
    tx.statement(include_str!("sql/endpoint_exists.sql"))?.exists([endpoint.0])
}

/// Whether a claim would find nothing and has nothing to write; then its answer.
fn glance(tx: &Tx<'_>, request: &Request) -> rusqlite::Result<Option<Result<Claimed>>> {
    if let Some(term) = &request.term {
        if let Err(lost) = fence::check(tx, request.endpoint, term.fence)? {
            return Ok(Some(Err(lost)));
        }
        if term.is_binding_due(tx, request.endpoint)? {
            return Ok(None);
        }
    }
    // Another number is that of its successor, should it have been dropped and made again.
    if request.look_for_lapsed && !is_there(tx, request.endpoint)? {
        return Ok(Some(Err(error(ErrorKind::NotFound, "the endpoint is gone: somebody has dropped it"))));
    }
    let glance = Glance::take(tx, request)?;
    let held_back = request.strict && !glance.lapsed && is_held_back(tx, request)?;
    if glance.is_due(tx) || glance.lapsed || (glance.ready && !held_back) {
        return Ok(None);
    }
    nothing(tx, request).map(|nothing| Some(Ok(nothing)))
}

/// A claim as work for the writer. Unlike others it is withdrawn by its own word, since an answer that nobody takes
/// would leave messages claimed.
pub(super) struct Claim {
    request: Request,
    state: Arc<State>,
    found: Option<Result<Claimed>>,
    reply: oneshot::Sender<Result<Claimed>>,
}

/// Whether a claim has been taken or withdrawn, whichever came first.
#[derive(Debug, Default)]
pub(super) struct State(AtomicU8);

impl State {
    const QUEUED: u8 = 0;
    const TAKEN: u8 = 1;
    const WITHDRAWN: u8 = 2;

    fn move_on(&self, to: u8) -> bool {
        self.0.compare_exchange(Self::QUEUED, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Withdraws the claim; `false` if it is being made, so that its answer comes and has to be taken.
    pub(super) fn withdraw(&self) -> bool {
        self.move_on(Self::WITHDRAWN)
    }
}

impl Claim {
    pub(super) fn new(request: Request) -> (Box<Self>, Arc<State>, oneshot::Receiver<Result<Claimed>>) {
        let (reply, answer) = oneshot::channel();
        let state = Arc::new(State::default());
        (Box::new(Claim { request, state: Arc::clone(&state), found: None, reply }), state, answer)
    }
}

impl Work for Claim {
    fn take(&mut self) -> bool {
        // A dropped `receive` counts as withdrawn too.
        !self.reply.is_closed() && self.state.move_on(State::TAKEN)
    }

    fn glance(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        self.found = glance(tx, &self.request)?;
        Ok(self.found.is_some())
    }

    fn run(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        self.found = Some(claim(tx, &self.request)?);
        Ok(())
    }

    fn answer(self: Box<Self>, end: Result<()>) {
        let Claim { found, reply, .. } = *self;
        let answer = end.and_then(|()| found.unwrap_or_else(|| Err(not_run())));
        // Nobody there: what was claimed comes back when its lease ends.
        let _ = reply.send(answer);
    }
}
