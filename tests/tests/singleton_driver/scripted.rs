//! A lock manager that does what it is told to: answer, fail, hang, do the work and lose the answer, panic.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bus::clock::{BootInstant, Clock};
use bus::contract::{
    BoxFuture, Ended, Fence, FenceClaim, FenceGuard, FenceRow, Fencing, Grant, Lease, LockGuarantees, LockId,
    LockManager, LockRecord, Owner, Raised, Reach, Renewal, SqlExecutor,
};
use bus::{Endpoint, Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    TryLock,
    Renew,
    Release,
    GiveUp,
    Inspect,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing is done, and an error is the answer.
    Error,
    /// Nothing is done, and there never is an answer: a frozen connection.
    Hang,
    /// It is done, and the answer is an error.
    DoneButError,
    /// It is done, and there never is an answer.
    DoneButHang,
    Panic,
}

#[derive(Clone, Debug)]
struct Record {
    owner: Owner,
    fence: u64,
    lock_lease: Duration,
    until: BootInstant,
    ended: Option<Ended>,
}

/// The store that several hosts' lock managers share.
pub(crate) struct Store {
    clock: Clock,
    record: Mutex<(Option<Record>, u64)>,
    freed: watch::Sender<u64>,
}

impl Store {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Store { clock, record: Mutex::new((None, 0)), freed: watch::Sender::new(0) })
    }

    /// The store forgets who held the lock, as one does that ends the holder's session.
    pub(crate) fn forget_holder(&self) {
        self.record.lock().0 = None;
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.record.lock().0.as_ref().and_then(|record| record.ended.clone())
    }

    fn try_lock(&self, lease: Duration, owner: Owner) -> Option<u64> {
        let now = self.clock.now();
        let (record, highest) = &mut *self.record.lock();
        if let Some(held) = record
            && held.ended != Some(Ended::Clean)
            && now < held.until
        {
            let again = held.owner == owner && held.ended.is_none();
            held.until = if again { now + lease } else { held.until };
            return again.then_some(held.fence);
        }
        *highest += 1;
        let (fence, until) = (*highest, now + lease);
        *record = Some(Record { owner, fence, lock_lease: lease, until, ended: None });
        Some(*highest)
    }

    /// Runs `change` on the record if it is held under owner and fence.
    fn if_held(&self, owner: Owner, fence: Option<u64>, change: impl FnOnce(&mut Record)) -> bool {
        match &mut self.record.lock().0 {
            Some(record)
                if record.owner == owner
                    && fence.is_none_or(|fence| fence == record.fence)
                    && record.ended.is_none() =>
            {
                change(record);
                true
            }
            _ => false,
        }
    }

    fn release(&self, owner: Owner, fence: Option<u64>, ended: Ended) {
        let clean = ended == Ended::Clean;
        if self.if_held(owner, fence, |record| record.ended = Some(ended)) && clean {
            self.freed.send_modify(|times| *times += 1);
        }
    }
}

#[derive(Default)]
struct Script {
    always: HashMap<Call, Fault>,
    next: HashMap<Call, VecDeque<Fault>>,
    calls: Vec<(Call, Owner)>,
}

/// One host's connection to the store.
#[derive(Clone)]
pub(crate) struct Locks {
    store: Arc<Store>,
    script: Arc<Mutex<Script>>,
}

impl Locks {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Locks { store: Arc::clone(store), script: Arc::default() }
    }

    /// From now on, every such call.
    pub(crate) fn always(&self, calls: &[Call], fault: Fault) {
        let mut script = self.script.lock();
        script.always.extend(calls.iter().map(|call| (*call, fault)));
    }

    /// The next so many such calls.
    pub(crate) fn next(&self, call: Call, fault: Fault, times: usize) {
        let mut script = self.script.lock();
        script.next.entry(call).or_default().extend(std::iter::repeat_n(fault, times));
    }

    pub(crate) fn heal(&self) {
        let mut script = self.script.lock();
        script.always.clear();
        script.next.clear();
    }

    /// The owners of all such calls so far, in their order.
    pub(crate) fn owners(&self, call: Call) -> Vec<Owner> {
        let script = self.script.lock();
        script.calls.iter().filter(|(made, _)| *made == call).map(|(_, owner)| *owner).collect()
    }

    async fn call<T>(&self, call: Call, owner: Owner, work: impl FnOnce() -> T) -> Result<T> {
        let fault = {
            let mut script = self.script.lock();
            script.calls.push((call, owner));
            let next = script.next.get_mut(&call).and_then(VecDeque::pop_front);
            next.or_else(|| script.always.get(&call).copied())
        };
        let error = || Err(Error::new(ErrorKind::Unavailable, "told to fail"));
        match fault {
            None => Ok(work()),
            Some(Fault::Error) => error(),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::DoneButError) => {
                work();
                error()
            }
            Some(Fault::DoneButHang) => {
                work();
                std::future::pending().await
            }
            Some(Fault::Panic) => panic!("told to panic"),
        }
    }
}

impl LockManager for Locks {
    fn guarantees(&self) -> LockGuarantees {
        let mut guarantees = LockGuarantees::new("scripted:", Reach::Process, "the test's clock");
        guarantees.leases.shortest = Duration::from_millis(100);
        guarantees.watch = true;
        guarantees
    }

    fn initialize(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn try_lock<'a>(
        &'a self,
        id: &'a LockId,
        lock_lease: Duration,
        owner: Owner,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lease>>>> {
        Box::pin(async move {
            let fence = self.call(Call::TryLock, owner, || self.store.try_lock(lock_lease, owner)).await?;
            Ok(fence.map(|fence| {
                let grant = Grant::new(id.clone(), owner, Fence::new(fence), lock_lease);
                Box::new(Held { locks: self.clone(), grant }) as Box<dyn Lease>
            }))
        })
    }

    fn give_up<'a>(&'a self, _id: &'a LockId, owner: Owner) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.call(Call::GiveUp, owner, move || self.store.release(owner, None, Ended::Clean)))
    }

    fn inspect<'a>(&'a self, id: &'a LockId) -> BoxFuture<'a, Result<Option<LockRecord>>> {
        let view = |record: &Record| {
            LockRecord::new(id.clone(), record.owner, Fence::new(record.fence), record.lock_lease)
        };
        Box::pin(
            self.call(Call::Inspect, Owner::fresh(), move || self.store.record.lock().0.as_ref().map(view)),
        )
    }

    fn watch<'a>(&'a self, _id: &'a LockId) -> BoxFuture<'a, ()> {
        let mut freed = self.store.freed.subscribe();
        Box::pin(async move {
            let _ = freed.changed().await;
        })
    }
}

struct Held {
    locks: Locks,
    grant: Grant,
}

impl Lease for Held {
    fn grant(&self) -> &Grant {
        &self.grant
    }

    fn renew(&self) -> BoxFuture<'_, Result<Renewal>> {
        Box::pin(async {
            let (store, Grant { owner, fence, .. }) = (&self.locks.store, &self.grant);
            let until = store.clock.now() + self.grant.lock_lease;
            let renew = || store.if_held(*owner, Some(fence.get()), |record| record.until = until);
            let held = self.locks.call(Call::Renew, *owner, renew).await?;
            Ok(if held { Renewal::Held } else { Renewal::Lost })
        })
    }

    fn release(&self, ended: Ended) -> BoxFuture<'_, Result<()>> {
        let Grant { owner, fence, .. } = self.grant;
        Box::pin(self.locks.call(Call::Release, owner, move || {
            self.locks.store.release(owner, Some(fence.get()), ended);
        }))
    }
}

/// A message store's row that answers what it is told to, and then that it is raised.
#[derive(Default)]
pub(crate) struct Row {
    pub(crate) answers: Mutex<VecDeque<Result<Raised>>>,
    pub(crate) claims: Mutex<Vec<FenceClaim>>,
}

impl Fencing for Row {
    fn raise(&self, claim: FenceClaim) -> BoxFuture<'_, Result<Raised>> {
        self.claims.lock().push(claim);
        let answer = self.answers.lock().pop_front().unwrap_or(Ok(Raised::Raised));
        Box::pin(std::future::ready(answer))
    }

    fn row<'a>(&'a self, _endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<FenceRow>>> {
        Box::pin(async { Ok(None) })
    }

    fn check_in<'a>(
        &'a self,
        _transaction: &'a mut dyn SqlExecutor,
        _guard: &'a FenceGuard,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
