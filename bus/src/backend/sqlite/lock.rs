//! The lock manager: a row per lock, written only under the condition that it is still what its writer believes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{OptionalExtension, Row};
use tokio::sync::watch;
use uuid::Uuid;

use super::config::Config;
use super::error::error;
use super::file::BRIEF;
use super::row::{fence_column, fence_from, instant, nanos};
use super::transaction::Tx;
use super::wake::Topic;
use super::writer::Writer;
use crate::clock::Clock;
use crate::contract::{
    BoxFuture, Ended, Fence, Lease, LockGuarantees, LockId, LockManager, LockRecord, OpenOptions, Owner,
    Reach, Renewal,
};
use crate::error::{ErrorKind, Result};

/// The longest lease that a holder can bind others with.
const LONGEST_LEASE: Duration = Duration::from_secs(600);
/// The shortest: less than that, and a busy disk alone loses it.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);
/// What a call may take that concerns no lease.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest note.
const LARGEST_NOTE: usize = 1024;

/// Locks in a SQLite file. Has a connection and a thread of its own, so that no backlog of messages delays a renewal.
pub(super) struct SqliteLocks {
    writer: Arc<Writer>,
    /// For each lock that was asked for: the hints as they stood then, so that a release between asking and watching
    /// is not missed.
    asked: Mutex<HashMap<LockId, watch::Receiver<()>>>,
}

impl SqliteLocks {
    pub(super) async fn open(mut config: Config, options: &OpenOptions) -> Result<Self> {
        config.busy_timeout = BRIEF;
        let opening = Writer::open(config, Clock::clone(&options.clock), "bus-sqlite-locks");
        let writer = in_time(PATIENCE, opening).await?;
        Ok(SqliteLocks { writer, asked: Mutex::default() })
    }
}

/// Gives a call so long. A call that is not answered in time was withdrawn or may be repeated: nobody waits for a
/// process that was frozen while it had the file.
async fn in_time<T>(time: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(time, call).await.unwrap_or_else(|_| {
        Err(error(ErrorKind::Timeout, "the file did not answer in time: another process keeps it locked"))
    })
}

/// How long a call about a lock of this lease may take.
fn patience(lock_lease: Duration) -> Duration {
    lock_lease / 10
}

/// A lock's row.
struct Record {
    id: String,
    owner: Uuid,
    fence: Fence,
    lease: Duration,
    renewed_at: i64,
    boot: i64,
    ended: Option<Ended>,
    note: Vec<u8>,
}

impl Record {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let ended: Option<String> = row.get(6)?;
        let reason: Option<String> = row.get(7)?;
        Ok(Record {
            id: row.get(0)?,
            owner: Uuid::from_bytes(row.get(1)?),
            fence: fence_from(row.get(2)?),
            lease: Duration::from_nanos(u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0)),
            renewed_at: row.get(4)?,
            boot: row.get(5)?,
            ended: ended.map(|ended| match ended.as_str() {
                "clean" => Ended::Clean,
                _ => Ended::Cut(reason.unwrap_or_default()),
            }),
            note: row.get(8)?,
        })
    }

    fn find(tx: &Tx<'_>, id: &str) -> rusqlite::Result<Option<Self>> {
        tx.statement(include_str!("sql/lock_find.sql"))?.query_row([id], Record::read).optional()
    }

    /// How long it is still held; `None` if it is free. A cut frees nothing early; a restart of the machine does.
    fn held_for(&self, tx: &Tx<'_>) -> Option<Duration> {
        if self.boot != tx.boot || self.ended == Some(Ended::Clean) {
            return None;
        }
        let end = instant(self.renewed_at) + self.lease.min(LONGEST_LEASE);
        (end > tx.now).then(|| end.since(tx.now))
    }

    fn into_public(self, tx: &Tx<'_>) -> LockRecord {
        let held_for = self.held_for(tx);
        let mut record =
            LockRecord::new(LockId::from(self.id.as_str()), Owner::from(self.owner), self.fence, self.lease);
        record.held_for = held_for;
        record.ended = self.ended;
        record.note = self.note;
        record
    }
}

/// Takes a lock, or extends it for the owner that has it already; answers the term's fence.
fn take(tx: &Tx<'_>, id: &str, lock_lease: Duration, owner: Uuid) -> rusqlite::Result<Option<Fence>> {
    let record = Record::find(tx, id)?;
    let held = record.as_ref().is_some_and(|record| record.held_for(tx).is_some());
    let fence = match &record {
        Some(record) if held && record.owner == owner && record.ended.is_none() => record.fence,
        Some(_) if held => return Ok(None),
        last => next_fence(tx, last.as_ref().map(|record| record.fence)),
    };
    tx.execute(
        include_str!("sql/lock_take.sql"),
        (
            id,
            owner.as_bytes().as_slice(),
            fence_column(fence),
            i64::try_from(lock_lease.as_nanos()).unwrap_or(i64::MAX),
            nanos(tx.now),
            tx.boot,
        ),
    )?;
    Ok(Some(fence))
}

/// Grows with every term, and across a restore from a backup too, since the clock has gone on meanwhile.
fn next_fence(tx: &Tx<'_>, last: Option<Fence>) -> Fence {
    let clock = u64::try_from(tx.wall.as_micros()).unwrap_or(0);
    let next = last.map_or(1, |last| last.get().saturating_add(1));
    Fence::new(next.max(clock))
}

impl LockManager for SqliteLocks {
    fn guarantees(&self) -> LockGuarantees {
        let authority = format!("sqlite:{}", self.writer.identity().path().display());
        let mut guarantees =
            LockGuarantees::new(authority, Reach::Machine, "the machine's boot clock, which counts suspends");
        guarantees.watch = self.writer.wake().is_listening();
        guarantees.shortest_lease = SHORTEST_LEASE;
        guarantees.longest_lease = LONGEST_LEASE;
        guarantees
    }

    // The tables are made when the file is opened.
    fn initialize(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(in_time(PATIENCE, self.writer.read(|_| Ok(()))))
    }

    fn try_lock<'a>(
        &'a self,
        id: &'a LockId,
        lock_lease: Duration,
        owner: Owner,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lease>>>> {
        Box::pin(async move {
            let lock_lease = lock_lease.min(LONGEST_LEASE);
            let hint = self.writer.wake().listen(Topic::Locks);
            self.asked.lock().insert(id.clone(), hint);
            let name = id.to_string();
            let taking = self.writer.write(move |tx| take(tx, &name, lock_lease, *owner.as_uuid()));
            let Some(fence) = in_time(patience(lock_lease), taking).await? else { return Ok(None) };
            let writer = Arc::clone(&self.writer);
            let lease = SqliteLease { writer, id: id.clone(), owner, fence, lock_lease };
            Ok(Some(Box::new(lease) as Box<dyn Lease>))
        })
    }

    fn give_up<'a>(&'a self, id: &'a LockId, owner: Owner) -> BoxFuture<'a, Result<()>> {
        let name = id.to_string();
        let giving_up = self.writer.write(move |tx| {
            let owner = owner.as_uuid().as_bytes().as_slice();
            if tx.execute(include_str!("sql/lock_give_up.sql"), (&name, owner))? == 1 {
                tx.free_lock();
            }
            Ok(())
        });
        Box::pin(in_time(PATIENCE, giving_up))
    }

    fn watch<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let asked = self.asked.lock().remove(id);
            let mut hint = asked.unwrap_or_else(|| self.writer.wake().listen(Topic::Locks));
            if hint.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn inspect<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, Result<Option<LockRecord>>> {
        let name = id.to_string();
        let reading =
            self.writer.read(move |tx| Ok(Record::find(tx, &name)?.map(|record| record.into_public(tx))));
        Box::pin(in_time(PATIENCE, reading))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<LockRecord>>> {
        let prefix = prefix.to_owned();
        let reading = self.writer.read(move |tx| {
            let records: Vec<Record> = tx
                .statement(include_str!("sql/lock_list.sql"))?
                .query_map([&prefix], Record::read)?
                .collect::<rusqlite::Result<_>>()?;
            Ok(records.into_iter().map(|record| record.into_public(tx)).collect())
        });
        Box::pin(in_time(PATIENCE, reading))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.writer.close())
    }
}

/// A term's hold on a lock.
struct SqliteLease {
    writer: Arc<Writer>,
    id: LockId,
    owner: Owner,
    fence: Fence,
    lock_lease: Duration,
}

impl SqliteLease {
    /// What every write is conditional on.
    fn key(&self) -> (String, [u8; 16], i64) {
        (self.id.to_string(), *self.owner.as_uuid().as_bytes(), fence_column(self.fence))
    }
}

impl Lease for SqliteLease {
    fn lock_id(&self) -> &LockId {
        &self.id
    }

    fn lease_id(&self) -> Owner {
        self.owner
    }

    fn fence(&self) -> Fence {
        self.fence
    }

    fn renew(&self) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(async move {
            let (id, owner, fence) = self.key();
            let renewing = self.writer.write(move |tx| {
                let params = (&id, owner.as_slice(), fence, nanos(tx.now), tx.boot);
                tx.execute(include_str!("sql/lock_renew.sql"), params)
            });
            let answer = in_time(patience(self.lock_lease), renewing).await;
            // In a file that nobody else can find any more, the lock keeps nobody out.
            if self.writer.identity().is_replaced() {
                return Ok(Renewal::Lost);
            }
            Ok(if answer? == 1 { Renewal::Held } else { Renewal::Lost })
        })
    }

    fn note(&self, note: Vec<u8>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if note.len() > LARGEST_NOTE {
                return Err(
                    error(ErrorKind::TooLarge, "a lock's note is at most 1 KiB").with("bytes", note.len())
                );
            }
            let (id, owner, fence) = self.key();
            let noting = self.writer.write(move |tx| {
                tx.execute(include_str!("sql/lock_note.sql"), (&id, owner.as_slice(), fence, &note)).map(drop)
            });
            in_time(patience(self.lock_lease), noting).await
        })
    }

    fn release(&self, ended: Ended) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let (id, owner, fence) = self.key();
            let releasing = self.writer.write(move |tx| {
                let (word, reason) = match &ended {
                    Ended::Clean => ("clean", None),
                    Ended::Cut(reason) => ("cut", Some(reason)),
                };
                let params = (&id, owner.as_slice(), fence, word, reason);
                let released = tx.execute(include_str!("sql/lock_release.sql"), params)? == 1;
                if released && ended == Ended::Clean {
                    tx.free_lock();
                }
                Ok(())
            });
            in_time(PATIENCE, releasing).await
        })
    }
}
