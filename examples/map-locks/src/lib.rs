//! A lock manager of your own: a map, for the hosts of one process. `tests/conformance.rs` runs the suite on it.
use bus::Result;
use bus::contract::{
    BoxFuture, Ended, Fence, Grant, Lease, LockGuarantees, LockId, LockManager, Owner, Reach, Renewal,
};
use std::{collections::HashMap, future::ready, sync::Arc, time::Duration, time::SystemTime};
use tokio::time::Instant;

/// The last term of a lock: whose, its fence, until when the lock is taken, whether the term has been cut.
type Term = (Owner, Fence, Instant, bool);

/// Locks in a map, which all clones share. What is known of a lock is kept for ever, since fences only grow.
#[derive(Clone, Default)]
pub struct MapLocks(Arc<parking_lot::Mutex<HashMap<LockId, Term>>>);
struct MapLease(MapLocks, Grant);

impl MapLocks {
    /// Changes a lock's running term, if it is that of `owner` (and `fence`): else it is lost.
    fn change(&self, id: &LockId, owner: Owner, fence: Option<Fence>, f: impl FnOnce(&mut Term)) -> Renewal {
        let is_ours = |(last, number, until, cut): &&mut Term| {
            *last == owner && fence.is_none_or(|f| f == *number) && *until > Instant::now() && !*cut
        };
        self.0.lock().get_mut(id).filter(is_ours).map(f).map_or(Renewal::Lost, |()| Renewal::Held)
    }
}

#[rustfmt::skip] // One line for each small function.
impl LockManager for MapLocks {
    fn guarantees(&self) -> LockGuarantees { LockGuarantees::new("map:", Reach::Process, "this process's clock") }
    fn initialize(&self) -> BoxFuture<'_, Result<()>> { Box::pin(ready(Ok(()))) }
    fn give_up<'a>(&'a self, id: &'a LockId, owner: Owner) -> BoxFuture<'a, Result<()>> { Box::pin(async move {
        self.change(id, owner, None, |term| term.2 = Instant::now());
        Ok(())
    }) }
    fn try_lock<'a>(&'a self, id: &'a LockId, lease: Duration, owner: Owner) -> BoxFuture<'a, Result<Option<Box<dyn Lease>>>> { Box::pin(async move {
        let (mut terms, now) = (self.0.lock(), Instant::now());
        let fence = match terms.get(id) {
            Some((last, fence, until, false)) if *until > now && *last == owner => *fence, // asked again
            Some((_, _, until, _)) if *until > now => return Ok(None),
            free => Fence::next(free.map(|(_, last, ..)| *last), SystemTime::now().into()),
        };
        terms.insert(id.clone(), (owner, fence, now + lease, false));
        Ok(Some(Box::new(MapLease(self.clone(), Grant::new(id.clone(), owner, fence, lease))) as Box<dyn Lease>))
    }) }
}

#[rustfmt::skip]
impl Lease for MapLease {
    fn grant(&self) -> &Grant { &self.1 }
    fn renew(&self) -> BoxFuture<'_, Result<Renewal>> { Box::pin(async move {
        let lease = self.1.lock_lease;
        Ok(self.0.change(&self.1.lock_id, self.1.owner, Some(self.1.fence), |term| term.2 = Instant::now() + lease))
    }) }
    fn release(&self, ended: Ended) -> BoxFuture<'_, Result<()>> { Box::pin(async move {
        self.0.change(&self.1.lock_id, self.1.owner, Some(self.1.fence), |term| match ended { Ended::Clean => term.2 = Instant::now(), Ended::Cut(_) => term.3 = true });
        Ok(())
    }) }
}
