//! What the cases work with: hosts, lock ids of their own, and waiting with a bound.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::patient::patient;
use crate::conformance::case::ensure;
use crate::conformance::{Checked, Failure, LockSubject, Need, Setup, Timing};
use crate::contract::{BoxFuture, Ended, Fence, Lease, LockId, LockManager, LockRecord, Owner, Renewal};

/// Two hosts on the lock manager under test.
pub struct Bench {
    pub(super) host: Arc<dyn LockManager>,
    pub(super) other_host: Arc<dyn LockManager>,
    pub(super) timing: Timing,
    /// A lease short enough to wait for its end.
    pub(super) short: Duration,
    /// A lease that does not end while a case runs.
    pub(super) long: Duration,
    salt: String,
}

impl Setup for Bench {
    type Subject = dyn LockSubject;

    fn open(subject: &Self::Subject) -> BoxFuture<'_, Checked<Self>> {
        Box::pin(async move {
            let host = patient(subject.open_locks().await?);
            host.initialize().await?;
            let other_host = patient(subject.open_locks().await?);
            other_host.initialize().await?;
            let (timing, guarantees) = (subject.timing(), host.guarantees());
            let short = timing.lease.max(guarantees.leases.shortest);
            let salt = Uuid::new_v4().simple().to_string();
            Ok(Bench { host, other_host, timing, short, long: guarantees.leases.longest, salt })
        })
    }

    fn has(&self, need: Need) -> BoxFuture<'_, Checked<bool>> {
        Box::pin(async move {
            Ok(match need {
                Need::Watch => self.host.guarantees().watch,
                Need::MonotonicAcrossRestore => self.host.guarantees().monotonic_across_restore,
                Need::Records | Need::Notes => self.probe_record(need).await?,
                _ => false,
            })
        })
    }
}

impl Bench {
    /// Whether a lock that is held shows a record, and a note in it.
    async fn probe_record(&self, need: Need) -> Checked<bool> {
        let id = self.id("probe");
        let lease = self.take(&id, self.long).await?;
        lease.note(b"probe".to_vec()).await?;
        let record = self.host.inspect(&id).await?;
        lease.release(Ended::Clean).await?;
        Ok(record.is_some_and(|record| need == Need::Records || record.note == b"probe"))
    }

    /// A lock that no other case uses.
    pub(super) fn id(&self, name: &str) -> LockId {
        LockId::of(Some(&self.salt), "default", "queue", name)
    }

    /// Takes a lock that must be free, as a new owner.
    pub(super) async fn take(&self, id: &LockId, lease: Duration) -> Checked<Box<dyn Lease>> {
        self.try_take(&self.host, id, lease)
            .await?
            .ok_or_else(|| Failure::new(format!("the lock {id} was free, and try_lock answered None")))
    }

    /// Tries to take a lock as a new owner, and checks what the answer says of itself.
    pub(super) async fn try_take(
        &self,
        host: &Arc<dyn LockManager>,
        id: &LockId,
        lease: Duration,
    ) -> Checked<Option<Box<dyn Lease>>> {
        let owner = Owner::fresh();
        let taken = host.try_lock(id, lease, owner).await?;
        if let Some(lease) = &taken {
            ensure!(lease.lock_id() == id, "the lock {id} was asked for, {} was given", lease.lock_id());
            ensure!(lease.lease_id() == owner, "{owner} asked, and {} was given it", lease.lease_id());
            ensure!(i64::try_from(lease.fence().get()).is_ok(), "the fence {} is too large", lease.fence());
        }
        Ok(taken)
    }

    /// Fails if somebody else can take the lock, whichever host is asked.
    pub(super) async fn expect_held(&self, id: &LockId, why: &str) -> Checked {
        for host in [&self.host, &self.other_host] {
            let taken = self.try_take(host, id, self.short).await?;
            ensure!(taken.is_none(), "another owner was given the lock although {why}");
        }
        Ok(())
    }

    /// Fails if somebody else can take the lock before `until`.
    pub(super) async fn expect_held_until(&self, id: &LockId, until: Instant, why: &str) -> Checked {
        loop {
            let taken = self.try_take(&self.other_host, id, self.short).await?;
            // A lock that was given now had been asked for before: only an answer before `until` proves anything.
            ensure!(
                taken.is_none() || Instant::now() >= until,
                "another owner was given the lock although {why}"
            );
            if taken.is_some() || Instant::now() >= until {
                return Ok(());
            }
            tokio::time::sleep(self.timing.moment).await;
        }
    }

    /// Takes a lock that has to become free by itself, and says when it did.
    pub(super) async fn wait_for(&self, id: &LockId, lease: Duration) -> Checked<(Box<dyn Lease>, Instant)> {
        let deadline = Instant::now() + self.timing.patience;
        loop {
            if let Some(lease) = self.try_take(&self.other_host, id, lease).await? {
                return Ok((lease, Instant::now()));
            }
            ensure!(
                Instant::now() < deadline,
                "the lock {id} was not free within {:?}",
                self.timing.patience
            );
            tokio::time::sleep(self.timing.moment).await;
        }
    }

    /// The record of a lock.
    pub(super) async fn record(&self, id: &LockId) -> Checked<LockRecord> {
        let record = self.other_host.inspect(id).await?;
        record.ok_or_else(|| Failure::new(format!("the lock {id} shows no record")))
    }
}

/// Renews; fails if the lock is lost.
pub(super) async fn renew(lease: &dyn Lease) -> Checked {
    let answer = lease.renew().await?;
    ensure!(answer == Renewal::Held, "the holder's renewal was answered {answer:?}");
    Ok(())
}

/// Renews; fails unless the lock is lost.
pub(super) async fn expect_lost(lease: &dyn Lease, why: &str) -> Checked {
    let answer = lease.renew().await?;
    ensure!(answer == Renewal::Lost, "a renewal was answered {answer:?} although {why}");
    Ok(())
}

/// Fails unless the later fence is the higher one.
pub(super) fn expect_growth(earlier: Fence, later: Fence, across: &str) -> Checked {
    ensure!(later > earlier, "across {across} the fence went from {earlier} to {later}");
    Ok(())
}
