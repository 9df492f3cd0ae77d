//! The lock manager: a bucket with a record per lock, written only under the condition that it is still what its writer
//! has read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::client::{Ask, Client};
use super::config::Config;
use super::error::{Lost, error, unexpected};
use super::jetstream::{EXPECTED, Written};
use super::streams::Home;
use super::transport;
use crate::clock::{BootInstant, Clock, Timestamp};
use crate::contract::{
    BoxFuture, Ended, Fence, Grant, LONGEST_LOCK_LEASE, Lease, LockGuarantees, LockId, LockManager,
    LockRecord, OpenOptions, Owner, Reach, Renewal, check_note, try_time,
};
use crate::error::{ErrorKind, Result};
use crate::observed::{Beat, Held, Observed};
use crate::reconnect::panicked;
use crate::wake;

/// What a call may take that concerns no lease.
const PATIENCE: Duration = Duration::from_secs(5);

/// A lock's record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    owner: Uuid,
    fence: Fence,
    /// The holder's lease, in microseconds.
    lease: u64,
    /// How long it is held after this was stored, in microseconds: less than the lease where that was no renewal.
    held: u64,
    /// `clean`, or `cut` with the reason.
    ended: Option<String>,
    reason: Option<String>,
    note: Option<String>,
}

/// A record, its number in the bucket, and when it was stored by the server's clock.
#[derive(Clone, Debug)]
struct Kept {
    record: Record,
    revision: u64,
    time: Timestamp,
}

/// What there is under a lock's key.
enum Found {
    Nothing,
    /// Somebody has deleted it; a write in its place names this number.
    Deleted(u64),
    Kept(Kept),
}

impl Record {
    fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    fn is_free(&self) -> bool {
        self.ended.as_deref() == Some("clean")
    }

    fn is_of(&self, grant: &Grant) -> bool {
        self.owner == *grant.owner.as_uuid() && self.fence == grant.fence && !self.is_over()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// How long a call about a lock of this lease may take.
fn patience(lock_lease: Duration) -> Duration {
    try_time(lock_lease).min(PATIENCE)
}

impl Client {
    async fn lock_record(&self, id: &LockId, until: Instant) -> Result<Found> {
        let Some(stored) = self.last_of(&self.names.locks(), &self.names.lock(id), until).await? else {
            return Ok(Found::Nothing);
        };
        if stored.data.is_empty() {
            return Ok(Found::Deleted(stored.sequence));
        }
        let record = serde_json::from_slice(&stored.data).map_err(|cause| {
            error(ErrorKind::Corrupt, "a lock's record cannot be read").with("lock", id).caused_by(cause)
        })?;
        Ok(Found::Kept(Kept { record, revision: stored.sequence, time: stored.time }))
    }

    async fn write_lock(
        &self,
        id: &LockId,
        record: &Record,
        expected: u64,
        until: Instant,
    ) -> Result<Written> {
        let bytes = serde_json::to_vec(record)
            .map_err(|cause| unexpected("a record that cannot be written").caused_by(cause))?;
        let ask = Ask::new(self.names.lock(id), bytes).with(EXPECTED, expected);
        self.write(&Home::Locks, ask, until, Lost::Again).await
    }

    /// Writes what `change` makes of a record; nothing, if it makes nothing of it. Whether it was written.
    async fn change_lock(
        &self,
        id: &LockId,
        until: Instant,
        change: impl Fn(&Record) -> Option<Record>,
    ) -> Result<bool> {
        loop {
            let Found::Kept(kept) = self.lock_record(id, until).await? else { return Ok(false) };
            let Some(changed) = change(&kept.record) else { return Ok(false) };
            if self.write_lock(id, &changed, kept.revision, until).await? != Written::Conflict {
                return Ok(true);
            }
        }
    }

    /// Tells those who wait that a lock was freed: once that is stored, so that who looks finds it.
    async fn tell_freed(&self, id: &LockId) {
        if let Err(error) = self.tell(self.names.freed(id), bytes::Bytes::new()).await {
            tracing::debug!(lock = %id, %error, "nobody was told that the lock is free: it is polled");
        }
    }
}

/// Locks on a NATS server. Has a connection of its own, so that no backlog of messages delays a renewal.
pub(super) struct NatsLocks {
    client: Arc<Client>,
    clock: Clock,
    authority: String,
    observed: Observed,
    hints: Arc<wake::Hints<String>>,
    /// For each lock that was asked for: the hints as they stood then, so that a release between asking and watching is
    /// not missed.
    asked: Mutex<HashMap<LockId, watch::Receiver<()>>>,
}

impl NatsLocks {
    pub(super) async fn open(config: &Config, options: &OpenOptions) -> Result<Self> {
        let client = transport::connect(config, options, Home::Locks).await?;
        let there = client.is_there(&Home::Locks, client.deadline()).await?;
        if !there && !options.create {
            return Err(error(ErrorKind::NotFound, "there are no locks of this prefix on the server"));
        }
        client.furnish(&Home::Locks, client.deadline()).await?;
        let hints = Arc::new(wake::Hints::default());
        let (listener, told) = (Arc::clone(&client), Arc::clone(&hints));
        client.tasks.spawn(async move {
            while panicked("what listens for hints", listen(&listener, &told)).await {}
        });
        Ok(NatsLocks {
            client,
            clock: options.clock.clone(),
            authority: config.shown(":"),
            observed: Observed::default(),
            hints,
            asked: Mutex::default(),
        })
    }

    /// Takes the lock; answers the term's fence, or `None` if somebody else holds it.
    async fn take(&self, id: &LockId, lock_lease: Duration, owner: Owner) -> Result<Option<Fence>> {
        self.listen_to(id);
        let until = Instant::now() + patience(lock_lease);
        loop {
            let now = self.client.server_now(until).await?;
            let (kept, expected) = match self.client.lock_record(id, until).await? {
                Found::Nothing => (None, 0),
                Found::Deleted(revision) => (None, revision),
                Found::Kept(kept) => {
                    let revision = kept.revision;
                    (Some(kept), revision)
                }
            };
            let record = kept.as_ref().map(|kept| &kept.record);
            let is_ours = record.is_some_and(|record| record.owner == *owner.as_uuid() && !record.is_over());
            if let Some(kept) = &kept
                && !is_ours
                && self.is_held(id, kept, now, until).await?
            {
                return Ok(None);
            }
            let last = record.map(|record| record.fence);
            let fence = match last {
                Some(fence) if is_ours => fence,
                last => Fence::next(last, now),
            };
            let taken = Record {
                owner: *owner.as_uuid(),
                fence,
                lease: micros(lock_lease),
                held: micros(lock_lease),
                ended: None,
                reason: None,
                note: record.and_then(|record| record.note.clone()),
            };
            if self.client.write_lock(id, &taken, expected, until).await? != Written::Conflict {
                self.observed.forget(id);
                return Ok(Some(fence));
            }
            // Somebody was faster: who has it now?
        }
    }

    /// Whether somebody has it: by the server's clock, unless what we have seen by our own tells otherwise, since the
    /// server's may have jumped.
    async fn is_held(&self, id: &LockId, kept: &Kept, now: Timestamp, until: Instant) -> Result<bool> {
        let Kept { record, revision, time } = kept;
        if record.is_free() {
            return Ok(false);
        }
        let beat = Beat { fence: record.fence.to_string(), beat: revision.to_string() };
        let here = self.clock.now();
        let is_held = match self.observed.seen(id, here) {
            Some(seen) if seen.beat == beat => !seen.wait.is_zero(),
            Some(_) => true,
            None => self.lasts(*time + Duration::from_micros(record.held), now, until).await?,
        };
        let age_micros = now.as_micros().saturating_sub(time.as_micros());
        self.observed.note(id, Held { beat, age_micros, lease: Duration::from_micros(record.held) }, here);
        Ok(is_held)
    }

    /// Whether a moment of the server's clock is still to come. `now` may be of an earlier reading, and the clock may have
    /// been set back since: before somebody is taken for dead it is asked again.
    async fn lasts(&self, end: Timestamp, now: Timestamp, until: Instant) -> Result<bool> {
        Ok(end > now || end > self.client.server_now_afresh(until).await?)
    }

    /// Takes note of the hints as they stand before the lock is asked for.
    fn listen_to(&self, id: &LockId) {
        let mut asked = self.asked.lock();
        asked
            .entry(id.clone())
            .or_insert_with(|| self.hints.listen(self.client.names.freed(id)))
            .mark_unchanged();
    }

    async fn show(&self, id: &LockId) -> Result<Option<LockRecord>> {
        let until = Instant::now() + PATIENCE;
        let Found::Kept(Kept { record, time, .. }) = self.client.lock_record(id, until).await? else {
            return Ok(None);
        };
        let now = self.client.server_now(until).await?;
        let lease = Duration::from_micros(record.lease);
        let mut shown = LockRecord::new(id.clone(), Owner::from(record.owner), record.fence, lease);
        let left = (time + Duration::from_micros(record.held)).since(now);
        shown.held_for = (!record.is_free() && !left.is_zero()).then(|| left.min(lease));
        shown.ended = match record.ended.as_deref() {
            None => None,
            Some("clean") => Some(Ended::Clean),
            Some(_) => Some(Ended::Cut(record.reason.unwrap_or_default())),
        };
        shown.note = read_note(record.note.as_deref());
        Ok(Some(shown))
    }
}

/// Passes hints on until the store is closed.
async fn listen(client: &Client, hints: &wake::Hints<String>) {
    while !client.closed().is_cancelled() {
        if client.up().await.is_err() {
            return;
        }
        let since = client.breaks();
        let Ok(mut told) = client.listen(client.names.all_freed()).await else { continue };
        // Hints may have been missed.
        hints.tell_all();
        loop {
            let message = tokio::select! {
                message = told.next() => message,
                () = client.broken(since) => None,
                () = client.closed().cancelled() => return,
            };
            match message {
                Some(message) => hints.tell(&message.subject.to_string()),
                None => break,
            }
        }
    }
}

fn write_note(note: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(note)
}

fn read_note(note: Option<&str>) -> Vec<u8> {
    use base64::Engine as _;
    note.and_then(|note| base64::engine::general_purpose::STANDARD.decode(note).ok()).unwrap_or_default()
}

impl LockManager for NatsLocks {
    fn guarantees(&self) -> LockGuarantees {
        let mut guarantees = LockGuarantees::new(
            self.authority.clone(),
            Reach::Fleet,
            "the server's clock, checked against the candidate's own",
        );
        guarantees.watch = true;
        guarantees
    }

    fn initialize(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.client.furnish(&Home::Locks, self.client.deadline()))
    }

    fn try_lock<'a>(
        &'a self,
        id: &'a LockId,
        lock_lease: Duration,
        owner: Owner,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lease>>>> {
        Box::pin(async move {
            let lock_lease = lock_lease.min(LONGEST_LOCK_LEASE);
            let asked = self.clock.now();
            let Some(fence) = self.take(id, lock_lease, owner).await? else { return Ok(None) };
            let grant = Grant::new(id.clone(), owner, fence, lock_lease);
            let (client, clock) = (Arc::clone(&self.client), self.clock.clone());
            let lease = NatsLease { client, clock, grant, renewed: Mutex::new(asked) };
            Ok(Some(Box::new(lease) as Box<dyn Lease>))
        })
    }

    fn give_up<'a>(&'a self, id: &'a LockId, owner: Owner) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let free = |record: &Record| {
                let is_theirs = record.owner == *owner.as_uuid() && !record.is_over();
                is_theirs.then(|| Record { ended: Some("clean".into()), ..record.clone() })
            };
            if self.client.change_lock(id, Instant::now() + PATIENCE, free).await? {
                self.client.tell_freed(id).await;
            }
            Ok(())
        })
    }

    fn watch<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let asked = self.asked.lock().get(id).cloned();
            let mut hint = asked.unwrap_or_else(|| self.hints.listen(self.client.names.freed(id)));
            if hint.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn inspect<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, Result<Option<LockRecord>>> {
        Box::pin(self.show(id))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<LockRecord>>> {
        Box::pin(async move {
            let names = &self.client.names;
            let until = self.client.deadline();
            let keys = self.client.subjects(&names.locks(), &names.lock_subjects(), until).await?;
            let mut ids: Vec<_> = keys.iter().filter_map(|key| names.read_lock(key)).collect();
            ids.retain(|id| id.as_str().starts_with(prefix));
            ids.sort_unstable();
            let mut records = Vec::with_capacity(ids.len());
            for id in ids {
                records.extend(self.show(&id).await?);
            }
            Ok(records)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.client.close())
    }
}

/// A term's hold on a lock.
struct NatsLease {
    client: Arc<Client>,
    clock: Clock,
    grant: Grant,
    /// When the last renewal was asked for.
    renewed: Mutex<BootInstant>,
}

impl NatsLease {
    /// How much of the lease is left, in microseconds: what is no renewal makes it no longer.
    fn left(&self) -> u64 {
        let renewed = *self.renewed.lock();
        micros((renewed + self.grant.lock_lease).since(self.clock.now()))
    }

    /// Changes the record if it is still this term's.
    async fn change(&self, within: Duration, change: impl Fn(Record) -> Record) -> Result<bool> {
        let ours = |record: &Record| record.is_of(&self.grant).then(|| change(record.clone()));
        self.client.change_lock(&self.grant.lock_id, Instant::now() + within, ours).await
    }
}

impl Lease for NatsLease {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    fn renew(&self) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(async move {
            let asked = self.clock.now();
            let lease = micros(self.grant.lock_lease);
            let renewed = |record: Record| Record { lease, held: lease, ..record };
            let held = self.change(patience(self.grant.lock_lease), renewed).await?;
            if held {
                *self.renewed.lock() = asked;
            }
            Ok(if held { Renewal::Held } else { Renewal::Lost })
        })
    }

    fn note(&self, note: Vec<u8>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            check_note(&note)?;
            let note = Some(write_note(&note));
            let noted = |record: Record| Record { note: note.clone(), held: self.left(), ..record };
            self.change(patience(self.grant.lock_lease), noted).await.map(drop)
        })
    }

    fn release(&self, ended: Ended) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let is_clean = ended == Ended::Clean;
            let (word, reason) = match ended {
                Ended::Clean => ("clean", None),
                Ended::Cut(reason) => ("cut", Some(reason)),
            };
            let over = |record: Record| Record {
                ended: Some(word.to_owned()),
                reason: reason.clone(),
                held: self.left(),
                ..record
            };
            if self.change(PATIENCE, over).await? && is_clean {
                self.client.tell_freed(&self.grant.lock_id).await;
            }
            Ok(())
        })
    }
}
