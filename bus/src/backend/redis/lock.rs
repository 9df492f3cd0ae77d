//! The lock manager: a record per lock, written only under the condition that it is still what its writer believes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::sync::watch;
use uuid::Uuid;

use super::answer::{bytes, duration, fence, items, next, number, text};
use super::client::Client;
use super::config::Config;
use super::error::{Lost, error, unexpected};
use super::fence::micros;
use super::registry;
use super::script::{Invocation, LOCK_FINISH, LOCK_NOTE, LOCK_RENEW, LOCK_SHOW, LOCK_TAKE, Script};
use super::server::Server;
use crate::clock::Clock;
use crate::contract::{
    BoxFuture, Durability, Ended, Fence, Grant, LONGEST_LOCK_LEASE, Lease, LockGuarantees, LockId,
    LockManager, LockRecord, OpenOptions, Owner, Reach, Renewal, check_note, try_time,
};
use crate::error::{ErrorKind, Result};
use crate::observed::{Beat, Held, Observed};

/// What a call may take that concerns no lease.
const PATIENCE: Duration = Duration::from_secs(5);

/// Locks on a Redis server. Has connections of its own, so that no backlog of messages delays a renewal.
pub(super) struct RedisLocks {
    client: Arc<Client>,
    clock: Clock,
    authority: String,
    durability: Durability,
    observed: Observed,
    /// For each lock that was asked for: the hints as they stood then, so that a release between asking and watching is
    /// not missed.
    asked: Mutex<HashMap<LockId, watch::Receiver<()>>>,
}

/// How long a call about a lock of this lease may take.
fn patience(lock_lease: Duration) -> Duration {
    try_time(lock_lease).min(PATIENCE)
}

impl RedisLocks {
    pub(super) async fn open(config: Config, options: &OpenOptions) -> Result<Self> {
        let client = Client::open(&config).await?;
        let server = Server::ask(&client).await?;
        server.check()?;
        server.check_for_locks()?;
        server.warn_of_forgotten_locks(&config.server);
        Ok(RedisLocks {
            client,
            clock: options.clock.clone(),
            authority: config.address(":"),
            durability: server.durability(),
            observed: Observed::default(),
            asked: Mutex::default(),
        })
    }

    fn call(&self, script: &'static Script, id: &LockId) -> Invocation {
        Invocation::new(script, vec![self.client.keys.lock(id)])
    }

    /// Takes the lock; answers the term's fence, or `None` if somebody else holds it.
    async fn take(&self, id: &LockId, lock_lease: Duration, owner: Owner) -> Result<Option<Fence>> {
        self.listen(id, patience(lock_lease) / 4).await;
        let mut call = self.call(&LOCK_TAKE, id).with(owner).with(micros(lock_lease));
        match self.observed.seen(id, self.clock.now()) {
            Some(seen) => {
                for argument in [seen.beat.fence, seen.beat.beat, micros(seen.wait).to_string()] {
                    call.add(argument);
                }
            }
            None => {
                for argument in ["", "", "0"] {
                    call.add(argument);
                }
            }
        }
        let answer = self.client.run_within(patience(lock_lease), &call, Lost::Again).await?;
        let mut answer = items(answer)?;
        match text(next(&mut answer)?)?.as_str() {
            "taken" => {
                self.observed.forget(id);
                Ok(Some(fence(next(&mut answer)?)?))
            }
            "held" => {
                self.observed.note(id, read_held(&mut answer)?, self.clock.now());
                Ok(None)
            }
            _ => Err(unexpected("no outcome of taking a lock")),
        }
    }

    /// Takes note of the hints as they stand before the lock is asked for.
    async fn listen(&self, id: &LockId, patience: Duration) {
        let known = self.asked.lock().get_mut(id).map(watch::Receiver::mark_unchanged).is_some();
        if !known {
            let hint = self.client.hints.listen(self.client.keys.lock_channel(id), patience).await;
            self.asked.lock().insert(id.clone(), hint);
        }
    }

    async fn show(&self, id: &LockId) -> Result<Option<LockRecord>> {
        let call = self.call(&LOCK_SHOW, id);
        let mut row = items(self.client.run_within(PATIENCE, &call, Lost::Again).await?)?;
        let Some(owner) = row.next() else { return Ok(None) };
        let owner = Uuid::try_parse(&text(owner)?).map_err(|e| {
            error(ErrorKind::Corrupt, "a lock's record names no owner").with("lock", id).caused_by(e)
        })?;
        let (fence, lease) = (fence(next(&mut row)?)?, Duration::from_micros(number(next(&mut row)?)?));
        let mut record = LockRecord::new(id.clone(), Owner::from(owner), fence, lease);
        record.held_for = duration(next(&mut row)?)?;
        let (ended, reason) = (text(next(&mut row)?)?, text(next(&mut row)?)?);
        record.ended = match ended.as_str() {
            "" => None,
            "clean" => Some(Ended::Clean),
            _ => Some(Ended::Cut(reason)),
        };
        record.note = bytes(next(&mut row)?)?;
        Ok(Some(record))
    }
}

fn read_held(answer: &mut impl Iterator<Item = Value>) -> Result<Held> {
    let beat = Beat { fence: text(next(answer)?)?, beat: text(next(answer)?)? };
    let age_micros = number(next(answer)?)?;
    Ok(Held { beat, age_micros, lease: Duration::from_micros(number(next(answer)?)?) })
}

impl LockManager for RedisLocks {
    fn guarantees(&self) -> LockGuarantees {
        let mut guarantees = LockGuarantees::new(
            self.authority.clone(),
            Reach::Fleet,
            "the server's clock, checked against the candidate's own; not across a fail-over to a replica",
        );
        guarantees.durability = self.durability;
        guarantees.watch = true;
        guarantees
    }

    // Records are made when their locks are taken for the first time.
    fn initialize(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.client.ask(&redis::cmd("PING")).await.map(drop) })
    }

    fn try_lock<'a>(
        &'a self,
        id: &'a LockId,
        lock_lease: Duration,
        owner: Owner,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lease>>>> {
        Box::pin(async move {
            let lock_lease = lock_lease.min(LONGEST_LOCK_LEASE);
            let Some(fence) = self.take(id, lock_lease, owner).await? else { return Ok(None) };
            let grant = Grant::new(id.clone(), owner, fence, lock_lease);
            let lease = RedisLease { client: Arc::clone(&self.client), grant };
            Ok(Some(Box::new(lease) as Box<dyn Lease>))
        })
    }

    fn give_up<'a>(&'a self, id: &'a LockId, owner: Owner) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let call = self.call(&LOCK_FINISH, id).with(owner).with("").with("clean").with("");
            self.client.run_within(PATIENCE, &call, Lost::Again).await.map(drop)
        })
    }

    fn watch<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let asked = self.asked.lock().get(id).cloned();
            let mut hint = match asked {
                Some(hint) => hint,
                None => self.client.hints.listen(self.client.keys.lock_channel(id), PATIENCE).await,
            };
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
            let mut ids = registry::locks(&self.client).await?;
            ids.retain(|id| id.starts_with(prefix));
            ids.sort_unstable();
            let mut records = Vec::with_capacity(ids.len());
            for id in ids {
                records.extend(self.show(&LockId::from(id.as_str())).await?);
            }
            Ok(records)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.client.close())
    }
}

/// A term's hold on a lock.
struct RedisLease {
    client: Arc<Client>,
    grant: Grant,
}

impl RedisLease {
    /// A call under the condition that the record is still this term's.
    fn call(&self, script: &'static Script) -> Invocation {
        let Grant { lock_id, owner, fence, .. } = &self.grant;
        Invocation::new(script, vec![self.client.keys.lock(lock_id)]).with(owner).with(fence)
    }
}

impl Lease for RedisLease {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    fn renew(&self) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(async move {
            let call = self.call(&LOCK_RENEW).with(micros(self.grant.lock_lease));
            let answer = self.client.run_within(patience(self.grant.lock_lease), &call, Lost::Again).await?;
            Ok(if number::<u8>(answer)? == 1 { Renewal::Held } else { Renewal::Lost })
        })
    }

    fn note(&self, note: Vec<u8>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            check_note(&note)?;
            let mut call = self.call(&LOCK_NOTE);
            call.add_bytes(note);
            self.client.run_within(patience(self.grant.lock_lease), &call, Lost::Again).await.map(drop)
        })
    }

    fn release(&self, ended: Ended) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let (word, reason) = match ended {
                Ended::Clean => ("clean", String::new()),
                Ended::Cut(reason) => ("cut", reason),
            };
            let call = self.call(&LOCK_FINISH).with(word).with(reason);
            self.client.run_within(PATIENCE, &call, Lost::Again).await.map(drop)
        })
    }
}
