//! The lock manager: a row per lock, written only under the condition that it is still what its writer believes. Never
//! a session's advisory lock: a session ends without its holder's knowing, and a pooler gives it to others.
//!
//! Expiry is reckoned by the server's clock, inside the statement. A server's clock can be set, though, so that each
//! candidate also watches the record by its own boot clock: one that was seen to be renewed less than a lease ago is
//! not taken, whatever the server's clock says, and one that has not changed for a whole lease is dead. So is one that was
//! seen to be held and has been removed since: its holder learns of that with the next renewal only.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_postgres::Row;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::config::Config;
use super::error::{Failure, error};
use super::pool::{Pool, within};
use super::row::{fence_column, fence_from, micros, span, text_column};
use super::schema;
use super::session::{Durability, Param};
use super::statement::{self, Sql};
use super::store::{POLL_UNHEARD, ask_what_a_commit_means};
use super::wake::{Topic, Wake};
use crate::clock::{BootInstant, Clock};
use crate::contract::Durability as Outlives;
use crate::contract::{
    BoxFuture, Ended, Fence, Grant, LONGEST_LOCK_LEASE, Lease, LeaseRange, LockGuarantees, LockId,
    LockManager, LockRecord, OpenOptions, Owner, Reach, Renewal, check_note, try_time,
};
use crate::error::{ErrorKind, Result};

/// The leases that it takes. With less than a second, a busy network alone would lose it.
pub(super) const LEASES: LeaseRange = LeaseRange::USUAL;
/// What a call may take that concerns no lease.
const PATIENCE: Duration = Duration::from_secs(5);
/// A renewal never waits for others' calls.
const CONNECTIONS: usize = 4;

/// Locks in a Postgres database, on connections of their own, so that no backlog of messages delays a renewal.
pub(super) struct PostgresLocks {
    shared: Arc<Shared>,
    store: Uuid,
    outlives: Outlives,
    watching: bool,
    /// For each lock that was asked for: the hints as they stood then, so that a release between asking and watching
    /// is not missed.
    asked: Mutex<HashMap<LockId, watch::Receiver<()>>>,
    /// What was seen of each lock that somebody else holds.
    seen: Mutex<HashMap<LockId, Sighting>>,
    tasks: TaskTracker,
}

/// What locks and leases share.
struct Shared {
    pool: Arc<Pool>,
    wake: Arc<Wake>,
    clock: Clock,
}

/// A record as it was seen, and since when it has not changed.
#[derive(Clone, Copy)]
struct Sighting {
    owner: Uuid,
    fence: Fence,
    renewed_at: i64,
    since: BootInstant,
    /// When it was renewed, at the latest. A record that is found dead says nothing about that.
    renewed: Option<BootInstant>,
    looked: BootInstant,
    lease: Duration,
    /// Whether it was in a holder's hands, dead or alive.
    held: bool,
    /// Since when it has not been there.
    gone: Option<BootInstant>,
}

impl PostgresLocks {
    pub(super) async fn open(config: Config, options: &OpenOptions) -> Result<Self> {
        let pool = Pool::new(Arc::new(config), Durability::Full, CONNECTIONS);
        let store = schema::open(&pool, options.create).await?;
        let (outlives, _, direct) = ask_what_a_commit_means(&pool).await?;
        let tasks = TaskTracker::new();
        let wake = Wake::start(&pool, &tasks, direct);
        let shared = Arc::new(Shared { pool, wake, clock: options.clock.clone() });
        Ok(PostgresLocks {
            shared,
            store,
            outlives,
            watching: direct,
            asked: Mutex::default(),
            seen: Mutex::default(),
            tasks,
        })
    }

    /// Takes a record in, and answers since when it has been as it is.
    fn see(&self, id: &LockId, record: &Record, now: BootInstant) -> Sighting {
        let mut seen = self.seen.lock();
        let before = seen.get(id).copied();
        let same = |before: &Sighting| {
            (before.owner, before.fence, before.renewed_at) == (record.owner, record.fence, record.renewed_at)
        };
        let sighting = match before {
            Some(before) if same(&before) => {
                Sighting { looked: now, held: record.is_held(), gone: None, ..before }
            }
            // It was renewed since the last look. If that was long ago, so may the renewal be.
            Some(before) if now.since(before.looked) < record.lease => record.seen(now, Some(now)),
            _ => record.seen(now, record.renewed_by_server(now)),
        };
        seen.insert(id.clone(), sighting);
        sighting
    }

    /// A record is not there, as a call at `asked` was told at `answered`. Answers the fence that was last seen in it, if
    /// somebody has removed it; `None` while it has to be left alone: its holder does not know yet, and may have renewed
    /// it just before it was removed.
    fn look_for_removed(&self, id: &LockId, asked: BootInstant, answered: BootInstant) -> Option<i64> {
        let mut seen = self.seen.lock();
        let Some(before) = seen.get_mut(id) else { return Some(0) };
        let gone = *before.gone.get_or_insert(answered);
        let is_free = !before.held || asked.since(gone) > before.lease.min(LONGEST_LOCK_LEASE);
        is_free.then(|| fence_column(before.fence))
    }

    /// Takes a lock, or extends it for the owner that has it already; answers the term's fence.
    async fn take(&self, id: &LockId, lock_lease: Duration, owner: Uuid) -> Result<Option<Fence>, Failure> {
        let time = try_time(lock_lease);
        let lease = micros(lock_lease);
        let name = id.as_str();
        let asked = self.shared.clock.now();
        let rows = self.shared.ask(time, &statement::LOCK_FIND, &[&name]).await?;
        let Some(record) = rows.first().map(Record::read).transpose()? else {
            let Some(before) = self.look_for_removed(id, asked, self.shared.clock.now()) else {
                return Ok(None);
            };
            let make: [Param<'_>; 4] = [&name, &owner, &lease, &before];
            let made = first_fence(&self.shared.ask(time, &statement::LOCK_MAKE, &make).await?)?;
            return self.unless_another_was_faster(id, made, time).await;
        };
        // It may have been renewed until just before the answer.
        let sighting = self.see(id, &record, self.shared.clock.now());
        if record.held_for.is_some() && record.owner == owner && record.ended.is_none() {
            let fence = fence_column(record.fence);
            let extend: [Param<'_>; 5] = [&name, &owner, &fence, &lease, &false];
            return first_fence(&self.shared.ask(time, &statement::LOCK_RENEW, &extend).await?);
        }
        let unchanged = asked.since(sighting.since);
        let clean = record.ended == Some(Ended::Clean);
        if !clean && sighting.renewed.is_some_and(|renewed| asked.since(renewed) < record.lease) {
            return Ok(None);
        }
        let dead = unchanged > record.lease.min(LONGEST_LOCK_LEASE);
        if record.held_for.is_some() && !dead {
            return Ok(None);
        }
        let fence = fence_column(record.fence);
        let take: [Param<'_>; 7] = [&name, &owner, &lease, &record.owner, &fence, &record.renewed_at, &dead];
        let taken = first_fence(&self.shared.ask(time, &statement::LOCK_TAKE, &take).await?)?;
        self.unless_another_was_faster(id, taken, time).await
    }

    /// What was taken. Where another candidate was faster, its record is seen at once: should somebody remove it before the
    /// next look, it is known to be held.
    async fn unless_another_was_faster(
        &self,
        id: &LockId,
        taken: Option<Fence>,
        time: Duration,
    ) -> Result<Option<Fence>, Failure> {
        if taken.is_none() {
            let rows = self.shared.ask(time, &statement::LOCK_FIND, &[&id.as_str()]).await?;
            if let Some(record) = rows.first().map(Record::read).transpose()? {
                self.see(id, &record, self.shared.clock.now());
            }
        }
        Ok(taken)
    }
}

fn first_fence(rows: &[Row]) -> Result<Option<Fence>, Failure> {
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?.map(fence_from))
}

/// A lock manager that nobody has any more leaves no connection and no task behind.
impl Drop for Shared {
    fn drop(&mut self) {
        self.pool.close();
    }
}

impl Shared {
    async fn ask(
        &self,
        time: Duration,
        sql: &'static Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Failure> {
        let asked = async {
            let mut session = self.pool.borrow().await?;
            let answer = within(time, session.query(sql, params)).await;
            session.end(answer)
        };
        let answer = within(time, asked).await;
        if let Err(failure) = &answer
            && failure.is_missing_schema()
        {
            schema::make(&self.pool).await?;
        }
        answer
    }
}

/// A lock's row.
struct Record {
    id: String,
    owner: Uuid,
    fence: Fence,
    lease: Duration,
    renewed_at: i64,
    ended: Option<Ended>,
    note: Vec<u8>,
    /// How long it is still held by the server's clock; `None` if it is free. A cut frees nothing early.
    held_for: Option<Duration>,
}

impl Record {
    fn read(row: &Row) -> Result<Self, Failure> {
        let (ended, reason): (Option<String>, Option<String>) = (row.try_get(5)?, row.try_get(6)?);
        let ended = ended.map(|ended| match ended.as_str() {
            "clean" => Ended::Clean,
            _ => Ended::Cut(reason.unwrap_or_default()),
        });
        let left: i64 = row.try_get(8)?;
        let held_for = (left > 0 && ended != Some(Ended::Clean)).then(|| span(left));
        Ok(Record {
            id: row.try_get(0)?,
            owner: row.try_get(1)?,
            fence: fence_from(row.try_get(2)?),
            lease: span(row.try_get(3)?),
            renewed_at: row.try_get(4)?,
            ended,
            note: row.try_get(7)?,
            held_for,
        })
    }

    /// Whether its holder has not said that nothing is done under it any more.
    fn is_held(&self) -> bool {
        self.ended != Some(Ended::Clean)
    }

    fn seen(&self, since: BootInstant, renewed: Option<BootInstant>) -> Sighting {
        let (owner, fence, renewed_at) = (self.owner, self.fence, self.renewed_at);
        let (lease, held) = (self.lease, self.is_held());
        Sighting { owner, fence, renewed_at, since, renewed, looked: since, lease, held, gone: None }
    }

    /// When the server's clock says that it was renewed, unless that is a lease ago.
    fn renewed_by_server(&self, now: BootInstant) -> Option<BootInstant> {
        self.held_for.map(|left| now - self.lease.saturating_sub(left))
    }

    fn into_public(self) -> LockRecord {
        let mut record =
            LockRecord::new(LockId::from(self.id.as_str()), Owner::from(self.owner), self.fence, self.lease);
        record.held_for = self.held_for;
        record.ended = self.ended;
        record.note = self.note;
        record
    }
}

impl LockManager for PostgresLocks {
    fn guarantees(&self) -> LockGuarantees {
        let config = self.shared.pool.config();
        // The store's own id, since one server has many addresses, and so may a database.
        let authority = format!("postgres:{}/{}", config.schema.as_str(), self.store.simple());
        let mut guarantees = LockGuarantees::new(
            authority,
            Reach::Fleet,
            "the server's clock, and each candidate's own boot clock should that be set",
        );
        guarantees.durability = self.outlives;
        guarantees.watch = self.watching;
        if !self.watching {
            guarantees.poll = POLL_UNHEARD;
        }
        guarantees.leases = LEASES;
        guarantees
    }

    // The tables are made when the store is opened.
    fn initialize(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { schema::open(&self.shared.pool, false).await.map(drop) })
    }

    fn try_lock<'a>(
        &'a self,
        id: &'a LockId,
        lock_lease: Duration,
        owner: Owner,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lease>>>> {
        Box::pin(async move {
            check_id(id)?;
            let lock_lease = lock_lease.min(LONGEST_LOCK_LEASE);
            let hint = self.shared.wake.hints.listen(Topic::Lock(id.clone()));
            self.asked.lock().insert(id.clone(), hint);
            let asked = self.shared.clock.now();
            let taken = self.take(id, lock_lease, *owner.as_uuid()).await.map_err(Failure::of_repeatable)?;
            let Some(fence) = taken else { return Ok(None) };
            self.seen.lock().remove(id);
            let confirmed = Mutex::new(asked);
            let grant = Grant::new(id.clone(), owner, fence, lock_lease);
            let lease = PostgresLease { shared: Arc::clone(&self.shared), grant, confirmed };
            Ok(Some(Box::new(lease) as Box<dyn Lease>))
        })
    }

    fn give_up<'a>(&'a self, id: &'a LockId, owner: Owner) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            check_id(id)?;
            let give_up: [Param<'_>; 2] = [&id.as_str(), owner.as_uuid()];
            let given = self.shared.ask(PATIENCE, &statement::LOCK_GIVE_UP, &give_up).await;
            if !given.map_err(Failure::of_repeatable)?.is_empty() {
                self.shared.wake.tell([Topic::Lock(id.clone())]);
            }
            Ok(())
        })
    }

    fn watch<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let asked = self.asked.lock().remove(id);
            let mut hint = asked.unwrap_or_else(|| self.shared.wake.hints.listen(Topic::Lock(id.clone())));
            if hint.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn inspect<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, Result<Option<LockRecord>>> {
        Box::pin(async move {
            check_id(id)?;
            let found = self.shared.ask(PATIENCE, &statement::LOCK_FIND, &[&id.as_str()]).await;
            let read = found.and_then(|rows| rows.first().map(Record::read).transpose());
            Ok(read.map_err(Failure::of_repeatable)?.map(Record::into_public))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<LockRecord>>> {
        Box::pin(async move {
            let found = self.shared.ask(PATIENCE, &statement::LOCK_LIST, &[&prefix]).await;
            let read = found.and_then(|rows| rows.iter().map(Record::read).collect::<Result<Vec<_>, _>>());
            Ok(read.map_err(Failure::of_repeatable)?.into_iter().map(Record::into_public).collect())
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.shared.pool.close();
            self.tasks.close();
            self.tasks.wait().await;
        })
    }
}

fn check_id(id: &LockId) -> Result<()> {
    match id.as_str().contains('\0') {
        true => Err(error(ErrorKind::InvalidInput, "a lock's id has no NUL in it")),
        false => Ok(()),
    }
}

/// A term's hold on a lock.
struct PostgresLease {
    shared: Arc<Shared>,
    grant: Grant,
    /// When the last confirmed request was sent.
    confirmed: Mutex<BootInstant>,
}

impl Lease for PostgresLease {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    fn renew(&self) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(async move {
            let asked = self.shared.clock.now();
            // By a clock that cannot be set: nobody who goes by the rules has taken it meanwhile.
            let surely_ours = asked.since(*self.confirmed.lock()) < self.grant.lock_lease;
            let renew: [Param<'_>; 5] = [
                &self.grant.lock_id.as_str(),
                self.grant.owner.as_uuid(),
                &fence_column(self.grant.fence),
                &micros(self.grant.lock_lease),
                &surely_ours,
            ];
            let renewed =
                self.shared.ask(try_time(self.grant.lock_lease), &statement::LOCK_RENEW, &renew).await;
            if renewed.map_err(Failure::of_repeatable)?.is_empty() {
                return Ok(Renewal::Lost);
            }
            *self.confirmed.lock() = asked;
            Ok(Renewal::Held)
        })
    }

    fn note(&self, note: Vec<u8>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            check_note(&note)?;
            let params: [Param<'_>; 4] = [
                &self.grant.lock_id.as_str(),
                self.grant.owner.as_uuid(),
                &fence_column(self.grant.fence),
                &note,
            ];
            let noted =
                self.shared.ask(try_time(self.grant.lock_lease), &statement::LOCK_NOTE, &params).await;
            noted.map(drop).map_err(Failure::of_repeatable)
        })
    }

    fn release(&self, ended: Ended) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let (word, reason) = match &ended {
                Ended::Clean => ("clean", None),
                Ended::Cut(reason) => ("cut", Some(text_column(reason))),
            };
            let release: [Param<'_>; 5] = [
                &self.grant.lock_id.as_str(),
                self.grant.owner.as_uuid(),
                &fence_column(self.grant.fence),
                &word,
                &reason,
            ];
            let released = self.shared.ask(PATIENCE, &statement::LOCK_RELEASE, &release).await;
            if !released.map_err(Failure::of_repeatable)?.is_empty() && ended == Ended::Clean {
                self.shared.wake.tell([Topic::Lock(self.grant.lock_id.clone())]);
            }
            Ok(())
        })
    }
}
