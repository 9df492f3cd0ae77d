//! A lock manager that is asked again when it did not answer in time, as a host asks again: how fast a store is on a busy
//! machine is no promise of the contract. What it answers in the end is.

use std::sync::Arc;
use std::time::Duration;

use crate::contract::{
    BoxFuture, Ended, Grant, Lease, LockGuarantees, LockId, LockManager, LockRecord, Owner, Renewal,
};
use crate::error::{Error, ErrorKind, Result};

/// How often a call is made at the most. Each of them may be repeated: that is in the contract.
const TRIES: u32 = 4;

/// The same lock manager, asked with patience.
pub(super) fn patient(locks: Arc<dyn LockManager>) -> Arc<dyn LockManager> {
    Arc::new(Patient(locks))
}

/// Makes a call, and again while its answer is [`ErrorKind::Timeout`].
async fn asked<'a, T>(call: impl Fn() -> BoxFuture<'a, Result<T>>) -> Result<T> {
    for _ in 1..TRIES {
        match call().await {
            Err(error) if error.kind() == ErrorKind::Timeout => {}
            answer => return answer,
        }
    }
    call().await
}

struct Patient(Arc<dyn LockManager>);

impl LockManager for Patient {
    fn guarantees(&self) -> LockGuarantees {
        self.0.guarantees()
    }

    fn initialize(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(asked(|| self.0.initialize()))
    }

    fn try_lock<'a>(
        &'a self,
        id: &'a LockId,
        lock_lease: Duration,
        owner: Owner,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lease>>>> {
        Box::pin(async move {
            let taken = asked(|| self.0.try_lock(id, lock_lease, owner)).await?;
            Ok(taken.map(|lease| Box::new(PatientLease(lease)) as Box<dyn Lease>))
        })
    }

    fn give_up<'a>(&'a self, id: &'a LockId, owner: Owner) -> BoxFuture<'a, Result<()>> {
        Box::pin(asked(move || self.0.give_up(id, owner)))
    }

    fn watch<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, ()> {
        self.0.watch(id)
    }

    fn inspect<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, Result<Option<LockRecord>>> {
        Box::pin(asked(move || self.0.inspect(id)))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<LockRecord>>> {
        Box::pin(asked(move || self.0.list(prefix)))
    }

    fn lost(&self) -> BoxFuture<'_, Error> {
        self.0.lost()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.close()
    }
}

struct PatientLease(Box<dyn Lease>);

impl Lease for PatientLease {
    fn grant(&self) -> &Grant {
        self.0.grant()
    }

    fn renew(&self) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(asked(|| self.0.renew()))
    }

    fn note(&self, note: Vec<u8>) -> BoxFuture<'_, Result<()>> {
        Box::pin(asked(move || self.0.note(note.clone())))
    }

    fn release(&self, ended: Ended) -> BoxFuture<'_, Result<()>> {
        Box::pin(asked(move || self.0.release(ended.clone())))
    }
}
