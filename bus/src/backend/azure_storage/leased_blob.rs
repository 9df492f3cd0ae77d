//! The steps of the protocol: what one owner does to the blob of one lock.
//!
//! The lease's id is the owner, so that asking again after a lost answer is asking for the same lease. The record is
//! written under that lease, and only if it is still what was read: a request that was held up on its way can undo
//! nothing that came after it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::client::{Blob, Container, Properties};
use super::error::Failure;
use super::name;
use super::record::Record;
use crate::clock::Timestamp;
use crate::contract::{Ended, Fence, LockId, Owner, Renewal};
use crate::error::Result;

/// The blob of a lock, in the hands of one owner.
pub(super) struct LeasedBlob {
    container: Arc<Container>,
    name: String,
    owner: Owner,
}

/// What became of a change to the record.
enum Changed {
    /// This is the record now.
    Written(Record),
    /// There was nothing to change.
    Unchanged,
    /// The lease is not the owner's any more, so that nothing was changed.
    NotOurs,
}

impl LeasedBlob {
    /// For the lock `id`, as `owner`. Asks nobody.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the id fits into no blob's name.
    pub(super) fn new(container: &Arc<Container>, id: &LockId, owner: Owner) -> Result<Self> {
        Ok(LeasedBlob { container: Arc::clone(container), name: name::of_lock(id)?, owner })
    }

    fn blob(&self) -> Blob<'_> {
        self.container.blob(&self.name)
    }

    fn lease(&self) -> Uuid {
        *self.owner.as_uuid()
    }

    fn record(&self, properties: &Properties) -> Result<Option<Record>> {
        Record::read(&properties.metadata).map_err(|error| error.with("blob", &self.name))
    }

    /// Takes the lease, making blob and container where they are missing; answers whether it is ours.
    pub(super) async fn acquire(&self, lock_lease: Duration, deadline: Instant) -> Result<bool> {
        let (blob, seconds) = (self.blob(), whole_seconds(lock_lease));
        let mut answer = blob.acquire(seconds, self.lease(), deadline).await;
        if answer.as_ref().is_err_and(Failure::is_missing) {
            blob.create(deadline).await.map_err(|failure| self.container.describe(failure))?;
            answer = blob.acquire(seconds, self.lease(), deadline).await;
        }
        match answer {
            Ok(()) => Ok(true),
            Err(failure) if failure.is_about_lease() => Ok(false),
            Err(failure) => Err(self.container.describe(failure)),
        }
    }

    /// Writes the record of a new term, and answers its fence; `None` if the lease is gone meanwhile. If this owner has
    /// written it already, and the answer was lost, it is the same term.
    pub(super) async fn begin(&self, lock_lease: Duration, deadline: Instant) -> Result<Option<Fence>> {
        let owner = self.owner;
        // As exact as it is written.
        let lock_lease = Duration::from_millis(u64::try_from(lock_lease.as_millis()).unwrap_or(u64::MAX));
        let begun = self.change(deadline, |last, now| {
            let fence = match &last {
                Some(last) if last.owner == owner && last.ended.is_none() => last.fence,
                last => Fence::next(last.as_ref().map(|last| last.fence), now),
            };
            let note = last.map(|last| last.note).unwrap_or_default();
            Some(Record { owner, fence, lock_lease, ended: None, note })
        });
        match begun.await {
            Ok(Changed::Written(record)) => Ok(Some(record.fence)),
            Ok(Changed::Unchanged | Changed::NotOurs) => Ok(None),
            Err(error) => {
                if !error.is_transient() {
                    // Nobody would get any further with it.
                    self.drop_unused(deadline).await;
                }
                Err(error)
            }
        }
    }

    /// Gives up a lease for which no term was begun. Another try of the same owner may have begun one meanwhile, or be about
    /// to: so only while the blob is as it was seen without one.
    async fn drop_unused(&self, deadline: Instant) {
        let Ok(seen) = self.blob().read(deadline).await else { return };
        let is_begun = |record: &Record| record.owner == self.owner && record.ended.is_none();
        if let Some(version) = &seen.version
            && !matches!(Record::read(&seen.metadata), Ok(Some(record)) if is_begun(&record))
        {
            // If that fails, the lease runs out by itself.
            let _ = self.blob().release_unchanged(self.lease(), version, deadline).await;
        }
    }

    /// Renews the lease. A success says that it is ours now, and nothing about whether it has been all along.
    pub(super) async fn renew(&self, deadline: Instant) -> Result<Renewal> {
        match self.blob().renew(self.lease(), deadline).await {
            Ok(()) => Ok(Renewal::Held),
            Err(failure) if failure.is_lost() => Ok(Renewal::Lost),
            Err(failure) => Err(self.container.describe(failure)),
        }
    }

    /// Whether the record is that of this term, and says that it goes on.
    pub(super) async fn is_running(&self, fence: Fence, deadline: Instant) -> Result<bool> {
        match self.blob().read(deadline).await {
            Ok(properties) => {
                let record = self.record(&properties)?;
                Ok(record.is_some_and(|record| record.is_running(self.owner, fence)))
            }
            Err(failure) if failure.is_missing() => Ok(false),
            Err(failure) => Err(self.container.describe(failure)),
        }
    }

    /// Writes a note into this term's record, if it is still the last one.
    pub(super) async fn note(&self, fence: Fence, note: &[u8], deadline: Instant) -> Result<()> {
        let noted = self.change(deadline, |last, _| {
            let last = last.filter(|last| last.is_term(self.owner, fence))?;
            Some(Record { note: note.to_vec(), ..last })
        });
        noted.await.map(drop)
    }

    /// Ends this term and gives the lease up, unless that has happened.
    pub(super) async fn end(&self, fence: Fence, ended: &Ended, deadline: Instant) -> Result<()> {
        match self.mark(|last| last.is_term(self.owner, fence), ended, deadline).await? {
            Changed::Written(record) => self.leave(&record, deadline).await,
            Changed::Unchanged | Changed::NotOurs => Ok(()),
        }
    }

    /// Gives up what this owner may have got without knowing: a term, or only the lease for one.
    pub(super) async fn give_up(&self, deadline: Instant) -> Result<()> {
        match self.mark(|last| last.owner == self.owner, &Ended::Clean, deadline).await? {
            Changed::Written(record) => self.leave(&record, deadline).await,
            Changed::Unchanged => self.settle(self.blob().release(self.lease(), deadline).await),
            Changed::NotOurs => Ok(()),
        }
    }

    /// Writes into the record how its term ended, if the term is ours and the first to say so.
    async fn mark(
        &self,
        is_ours: impl Fn(&Record) -> bool,
        ended: &Ended,
        deadline: Instant,
    ) -> Result<Changed> {
        let marked = self.change(deadline, |last, _| {
            let mut last = last.filter(&is_ours)?;
            last.ended.get_or_insert_with(|| ended.clone());
            Some(last)
        });
        marked.await
    }

    /// Gives up the lease of a term that has ended so. After a cut it has to run out by itself: it gets an id that nobody
    /// knows, so that neither its owner nor anyone else can renew, acquire or release it before.
    async fn leave(&self, record: &Record, deadline: Instant) -> Result<()> {
        let blob = self.blob();
        self.settle(match record.ended {
            Some(Ended::Cut(_)) => blob.change_lease(self.lease(), Uuid::new_v4(), deadline).await,
            _ => blob.release(self.lease(), deadline).await,
        })
    }

    /// That the lease was not ours any more is as good as having given it up.
    fn settle(&self, answer: std::result::Result<(), Failure>) -> Result<()> {
        match answer {
            Err(failure) if !failure.is_lost() => Err(self.container.describe(failure)),
            _ => Ok(()),
        }
    }

    /// Reads the record, and writes what `change` makes of it, given the service's clock, under the lease. Begins again
    /// where somebody, or an earlier try of our own, has written in between.
    async fn change(
        &self,
        deadline: Instant,
        change: impl Fn(Option<Record>, Timestamp) -> Option<Record>,
    ) -> Result<Changed> {
        let blob = self.blob();
        loop {
            let seen = match blob.read(deadline).await {
                Ok(properties) => properties,
                Err(failure) if failure.is_missing() => return Ok(Changed::NotOurs),
                Err(failure) => return Err(self.container.describe(failure)),
            };
            let last = self.record(&seen)?;
            let Some(wanted) = change(last.clone(), seen.date) else { return Ok(Changed::Unchanged) };
            if last.as_ref() == Some(&wanted) {
                return Ok(Changed::Written(wanted));
            }
            match blob.write(&wanted.write(), self.lease(), seen.version.as_ref(), deadline).await {
                Ok(()) => return Ok(Changed::Written(wanted)),
                Err(failure) if failure.is_outdated() => {}
                Err(failure) if failure.is_missing() || failure.is_about_lease() => {
                    return Ok(Changed::NotOurs);
                }
                Err(failure) => return Err(self.container.describe(failure)),
            }
        }
    }
}

/// Azure's leases are whole seconds: never shorter than what their holder goes by.
fn whole_seconds(lock_lease: Duration) -> i32 {
    let seconds = lock_lease.as_secs() + u64::from(lock_lease.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_rounded_up_to_whole_seconds() {
        for (millis, seconds) in [(15_000, 15), (15_001, 16), (59_999, 60), (60_000, 60)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
    }
}
