//! A lock manager that breaks one promise.

use std::sync::Arc;
use std::time::Duration;

use bus::conformance::{LockSubject, UrlSubject};
use bus::contract::{
    BoxFuture, Ended, Fence, Grant, Lease, LockGuarantees, LockId, LockManager, LockRecord, Owner, Renewal,
};
use bus::{Error, ErrorKind, Result};
use futures_util::FutureExt as _;

/// Which promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockFault {
    None,
    ResetFence,
    RenewAlways,
    ReleaseAlways,
    CutIsClean,
    AskersLease,
    NewFenceWhenAskedAgain,
    ReleaseOnDrop,
    ErrorWhenHeld,
    Everyone,
    SilentWatch,
    GiveUpForAnybody,
}

/// Opens an honest lock manager and lies about it.
pub(crate) struct SabotagedLocks {
    honest: UrlSubject,
    fault: LockFault,
}

impl SabotagedLocks {
    pub(crate) fn new(honest: UrlSubject, fault: LockFault) -> Self {
        SabotagedLocks { honest, fault }
    }
}

impl LockSubject for SabotagedLocks {
    fn open_locks(&self) -> BoxFuture<'_, Result<Arc<dyn LockManager>>> {
        Box::pin(async move {
            let inner = self.honest.open_locks().await?;
            Ok(Arc::new(Saboteur { inner, fault: self.fault }) as Arc<dyn LockManager>)
        })
    }
}

struct Saboteur {
    inner: Arc<dyn LockManager>,
    fault: LockFault,
}

impl Saboteur {
    /// Frees the lock whoever holds it.
    async fn rob(&self, id: &LockId) -> Result<()> {
        match self.inner.inspect(id).await? {
            Some(record) => self.inner.give_up(id, record.owner).await,
            None => Ok(()),
        }
    }

    async fn rob_if_overdue(&self, id: &LockId, askers_lease: Duration) -> Result<()> {
        let Some(record) = self.inner.inspect(id).await? else { return Ok(()) };
        let held_since = record.lock_lease - record.held_for.unwrap_or_default();
        if held_since >= askers_lease { self.rob(id).await } else { Ok(()) }
    }
}

impl LockManager for Saboteur {
    fn guarantees(&self) -> LockGuarantees {
        self.inner.guarantees()
    }

    fn initialize(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.initialize()
    }

    fn try_lock<'a>(
        &'a self,
        id: &'a LockId,
        lock_lease: Duration,
        owner: Owner,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lease>>>> {
        Box::pin(async move {
            match self.fault {
                LockFault::AskersLease => self.rob_if_overdue(id, lock_lease).await?,
                LockFault::NewFenceWhenAskedAgain => self.inner.give_up(id, owner).await?,
                LockFault::Everyone => self.rob(id).await?,
                _ => {}
            }
            let taken = self.inner.try_lock(id, lock_lease, owner).await?;
            if taken.is_none() && self.fault == LockFault::ErrorWhenHeld {
                return Err(Error::new(ErrorKind::Unavailable, "the lock is held"));
            }
            let (manager, fault) = (Arc::clone(&self.inner), self.fault);
            Ok(taken.map(|inner| {
                let mut grant = inner.grant().clone();
                if fault == LockFault::ResetFence {
                    grant.fence = Fence::new(1);
                }
                Box::new(SabotagedLease { inner, grant, manager, fault }) as Box<dyn Lease>
            }))
        })
    }

    fn give_up<'a>(&'a self, id: &'a LockId, owner: Owner) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match self.fault {
                LockFault::GiveUpForAnybody => self.rob(id).await,
                _ => self.inner.give_up(id, owner).await,
            }
        })
    }

    fn watch<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, ()> {
        match self.fault {
            LockFault::SilentWatch => Box::pin(std::future::pending()),
            _ => self.inner.watch(id),
        }
    }

    fn inspect<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, Result<Option<LockRecord>>> {
        self.inner.inspect(id)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<LockRecord>>> {
        self.inner.list(prefix)
    }
}

struct SabotagedLease {
    inner: Box<dyn Lease>,
    grant: Grant,
    manager: Arc<dyn LockManager>,
    fault: LockFault,
}

impl Lease for SabotagedLease {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    fn renew(&self) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(async move {
            let answer = self.inner.renew().await?;
            Ok(if self.fault == LockFault::RenewAlways { Renewal::Held } else { answer })
        })
    }

    fn note(&self, note: Vec<u8>) -> BoxFuture<'_, Result<()>> {
        self.inner.note(note)
    }

    fn release(&self, ended: Ended) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            match self.fault {
                LockFault::CutIsClean => self.inner.release(Ended::Clean).await,
                LockFault::ReleaseAlways => match self.manager.inspect(self.inner.lock_id()).await? {
                    Some(record) => self.manager.give_up(self.inner.lock_id(), record.owner).await,
                    None => Ok(()),
                },
                _ => self.inner.release(ended).await,
            }
        })
    }
}

impl Drop for SabotagedLease {
    fn drop(&mut self) {
        if self.fault == LockFault::ReleaseOnDrop {
            // The memory backend answers within one poll.
            let _ = self.inner.release(Ended::Clean).now_or_never();
        }
    }
}
