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
use super::row::{fence_column, fence_from, instant};
use super::transaction::Tx;
use super::transport::durability;
use super::wake::Topic;
use super::writer::{Role, Writer};
use crate::clock::Clock;
use crate::contract::{
    BoxFuture, Durability, Ended, Fence, Grant, Lease, LeaseRange, LockGuarantees, LockId, LockManager,
    LockRecord, OpenOptions, Owner, Reach, Renewal, check_note,
};
use crate::error::{Error, ErrorKind, Result};

/// The leases that a holder can bind others with. With less than a second, a busy disk alone would lose it.
pub(super) const LEASES: LeaseRange = LeaseRange::USUAL;
/// What a call may take that concerns no lease.
const PATIENCE: Duration = Duration::from_secs(5);

/// Locks in a SQLite file. Has a connection and a thread of its own, so that no backlog of messages delays a renewal.
pub(super) struct SqliteLocks {
    writer: Arc<Writer>,
    durability: Durability,
    /// For each lock that was asked for: the hints as they stood then, so that a release between asking and watching
    /// is not missed.
    asked: Mutex<HashMap<LockId, watch::Receiver<()>>>,
}

impl SqliteLocks {
    pub(super) async fn open(mut config: Config, options: &OpenOptions) -> Result<Self> {
        config.busy_timeout = BRIEF;
        let opening = Writer::open(config, Clock::clone(&options.clock), Role::Locks);
        let writer = in_time(PATIENCE, opening).await?;
        let durability = in_time(PATIENCE, durability(&writer)).await?;
        Ok(SqliteLocks { writer, durability, asked: Mutex::default() })
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

    /// How long it is still held, at the most; `None` if it is free. A cut frees nothing early.
    fn held_for(&self, tx: &Tx<'_>) -> rusqlite::Result<Option<Duration>> {
        if self.ended == Some(Ended::Clean) {
            return Ok(None);
        }
        // Whatever else is known of the holder's clock, it has shown this.
        let renewed = instant(self.renewed_at);
        let (end, now) = (renewed + self.lease.min(LEASES.longest), tx.clock_after(self.boot, renewed));
        let now = tx.clock(self.boot)?.map_or(now, |seen| now.max(seen));
        Ok((end > now).then(|| end.since(now)))
    }

    fn into_public(self, tx: &Tx<'_>) -> rusqlite::Result<LockRecord> {
        let held_for = self.held_for(tx)?;
        let mut record =
            LockRecord::new(LockId::from(self.id.as_str()), Owner::from(self.owner), self.fence, self.lease);
        record.held_for = held_for;
        record.ended = self.ended;
        record.note = self.note;
        Ok(record)
    }
}

/// Takes a lock, or extends it for the owner that has it already; answers the term's fence.
fn take(tx: &Tx<'_>, id: &str, lock_lease: Duration, owner: Uuid) -> rusqlite::Result<Option<Fence>> {
    let record = Record::find(tx, id)?;
    let held = match &record {
        Some(record) => record.held_for(tx)?.is_some(),
        None => false,
    };
    let fence = match &record {
        Some(record) if held && record.owner == owner && record.ended.is_none() => record.fence,
        Some(_) if held => return Ok(None),
        last => Fence::next(last.as_ref().map(|record| record.fence), tx.wall),
    };
    let (renewed_at, boot) = tx.dated(tx.now);
    tx.execute(
        include_str!("sql/lock_take.sql"),
        (
            id,
            owner.as_bytes().as_slice(),
            fence_column(fence),
            i64::try_from(lock_lease.as_nanos()).unwrap_or(i64::MAX),
            renewed_at,
            boot,
        ),
    )?;
    Ok(Some(fence))
}

impl LockManager for SqliteLocks {
    fn guarantees(&self) -> LockGuarantees {
        let authority = format!("sqlite:{}", self.writer.identity().path().display());
        let mut guarantees =
            LockGuarantees::new(authority, Reach::Machine, "the machine's boot clock, which counts suspends");
        guarantees.durability = self.durability;
        guarantees.watch = self.writer.wake().is_listening();
        guarantees.leases = LEASES;
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
            let lock_lease = lock_lease.min(LEASES.longest);
            let hint = self.writer.wake().listen(Topic::Locks);
            self.asked.lock().insert(id.clone(), hint);
            let name = id.to_string();
            let taking = self.writer.write(move |tx| take(tx, &name, lock_lease, *owner.as_uuid()));
            let Some(fence) = in_time(patience(lock_lease), taking).await? else { return Ok(None) };
            let grant = Grant::new(id.clone(), owner, fence, lock_lease);
            Ok(Some(Box::new(SqliteLease { writer: Arc::clone(&self.writer), grant }) as Box<dyn Lease>))
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
        let reading = self
            .writer
            .read(move |tx| Record::find(tx, &name)?.map(|record| record.into_public(tx)).transpose());
        Box::pin(in_time(PATIENCE, reading))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<LockRecord>>> {
        let prefix = prefix.to_owned();
        let reading = self.writer.read(move |tx| {
            let records: Vec<Record> = tx
                .statement(include_str!("sql/lock_list.sql"))?
                .query_map([&prefix], Record::read)?
                .collect::<rusqlite::Result<_>>()?;
            records.into_iter().map(|record| record.into_public(tx)).collect()
        });
        Box::pin(in_time(PATIENCE, reading))
    }

    fn lost(&self) -> BoxFuture<'_, Error> {
        Box::pin(self.writer.lost())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.writer.close())
    }
}

/// A term's hold on a lock.
struct SqliteLease {
    writer: Arc<Writer>,
    grant: Grant,
}

impl SqliteLease {
    /// What every write is conditional on.
    fn key(&self) -> (String, [u8; 16], i64) {
        let Grant { lock_id, owner, fence, .. } = &self.grant;
        (lock_id.to_string(), *owner.as_uuid().as_bytes(), fence_column(*fence))
    }
}

impl Lease for SqliteLease {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    fn renew(&self) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(async move {
            let (id, owner, fence) = self.key();
            let renewing = self.writer.write(move |tx| {
                let (now, boot) = tx.dated(tx.now);
                let params = (&id, owner.as_slice(), fence, now, boot);
                tx.execute(include_str!("sql/lock_renew.sql"), params)
            });
            let answer = in_time(patience(self.grant.lock_lease), renewing).await;
            // In a file that nobody else can find any more, the lock keeps nobody out.
            if self.writer.identity().is_away() {
                return Ok(Renewal::Lost);
            }
            Ok(if answer? == 1 { Renewal::Held } else { Renewal::Lost })
        })
    }

    fn note(&self, note: Vec<u8>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            check_note(&note)?;
            let (id, owner, fence) = self.key();
            let noting = self.writer.write(move |tx| {
                tx.execute(include_str!("sql/lock_note.sql"), (&id, owner.as_slice(), fence, &note)).map(drop)
            });
            in_time(patience(self.grant.lock_lease), noting).await
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
