//! A term: the stretch of time for which this process holds a singleton's lock, as seen by what runs under it.
//!
//! Whether a term still is one is decided by the clock, on whatever thread asks, and not by a flag that somebody
//! would have to set in time: a process that was frozen beyond its lease finds its term over in the first
//! instruction that asks. The keeper moves the deadline forward after each confirmed renewal and can end it early;
//! nothing moves it once it is over.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::protocol::{Deadlines, Event, RunId};
use crate::clock::{BootInstant, Clock};
use crate::contract::{Fence, FenceGuard, Fencing, LockId, Owner, SqlExecutor};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Endpoint;

/// What `owned_until` is once the term is over. No clock is ever below it.
const OVER: u64 = 0;

/// The right to act as the singleton, for as long as [`check`](Term::check) says so. Cheap to clone.
///
/// Writes of your own that must not come from a former holder either carry [`fence`](Term::fence), and the place they
/// go to refuses a lower one, or are preceded by [`check`](Term::check), which leaves a quarter of the lease for them.
#[derive(Clone)]
pub struct Term {
    inner: Arc<Inner>,
}

/// Which term it is.
pub(super) struct Identity {
    pub(super) lock: LockId,
    pub(super) owner: Owner,
    pub(super) fence: Fence,
    pub(super) run: RunId,
    /// The row in the message store that carries the fence.
    pub(super) row: Option<(Arc<dyn Fencing>, Arc<Endpoint>)>,
}

struct Inner {
    identity: Identity,
    clock: Clock,
    intake_until: AtomicU64,
    owned_until: AtomicU64,
    lost: CancellationToken,
    drain: CancellationToken,
    cut: CancellationToken,
    /// The intake may have been opened or closed.
    intake: Notify,
    dropped: CancellationToken,
    /// What was given to [`Term::spawn_blocking`] and still executes.
    blocking: TaskTracker,
    keeper: mpsc::UnboundedSender<Event>,
}

impl Term {
    pub(super) fn new(
        identity: Identity,
        clock: Clock,
        deadlines: Deadlines,
        keeper: mpsc::UnboundedSender<Event>,
    ) -> Self {
        Term {
            inner: Arc::new(Inner {
                identity,
                clock,
                intake_until: AtomicU64::new(deadlines.intake_until.as_nanos()),
                owned_until: AtomicU64::new(deadlines.owned_until.as_nanos()),
                lost: CancellationToken::new(),
                drain: CancellationToken::new(),
                cut: CancellationToken::new(),
                intake: Notify::new(),
                dropped: CancellationToken::new(),
                blocking: TaskTracker::new(),
                keeper,
            }),
        }
    }

    /// A term that nobody holds a lock for and that never ends, to call a handler in a unit test.
    pub fn for_tests(fence: u64) -> Self {
        let forever = BootInstant::from_nanos(u64::MAX);
        let deadlines = Deadlines { intake_until: forever, owned_until: forever };
        let (keeper, _) = mpsc::unbounded_channel();
        let lock = LockId::from("for-tests");
        let identity =
            Identity { lock, owner: Owner::fresh(), fence: Fence::new(fence), run: RunId(0), row: None };
        Term::new(identity, Clock::system(), deadlines, keeper)
    }

    /// A term that has been lost, to see what a handler does about it in a unit test: [`check`](Term::check) refuses,
    /// [`cancelled`](Term::cancelled) returns at once.
    pub fn lost_for_tests() -> Self {
        let term = Term::for_tests(1);
        term.lose();
        term
    }

    /// The term's number: higher than that of every earlier term of this singleton.
    pub fn fence(&self) -> Fence {
        self.inner.identity.fence
    }

    /// The lock that it is about.
    pub fn lock_id(&self) -> &LockId {
        &self.inner.identity.lock
    }

    /// Who holds the lock: another one in every term.
    pub fn owner(&self) -> Owner {
        self.inner.identity.owner
    }

    /// Whether this still is the holder, by the clock, without asking anybody. What is begun within a quarter of the
    /// lease after an `Ok` cannot meet a successor.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TermLost`], from then on always.
    pub fn check(&self) -> Result<()> {
        let inner = &*self.inner;
        let until = inner.owned_until.load(Ordering::Acquire);
        if inner.clock.now().as_nanos() < until {
            return Ok(());
        }
        // Whoever sees it first ends it for all, so that no renewal confirmed in this moment makes a handler hear "no"
        // and then "yes". If the deadline has just been moved, the clock is asked once more.
        if until != OVER {
            match inner.owned_until.compare_exchange(until, OVER, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    inner.lost.cancel();
                    inner.intake.notify_waiters();
                    // The keeper is only told; that it may be gone changes nothing.
                    let _ = inner.keeper.send(Event::Lapsed { run: inner.identity.run });
                }
                Err(moved) if inner.clock.now().as_nanos() < moved => return Ok(()),
                Err(_) => {}
            }
        }
        Err(Error::new(ErrorKind::TermLost, "the term is over: this process does not hold the lock any more")
            .with("lock", &inner.identity.lock)
            .with("fence", inner.identity.fence))
    }

    /// Commits the transaction that is open on `transaction` if, and only if, this term is in force in the message store,
    /// which must be the same database: what was written in it is then the holder's. Otherwise it is rolled back.
    ///
    /// With the feature `sqlite`, `transaction` is a `rusqlite::Connection` to the store's file on which
    /// `BEGIN IMMEDIATE` was run; give it a `busy_timeout`, since the bus writes there too. For another driver,
    /// [`SqlExecutor`] is one method.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TermLost`] if another term is in force; [`ErrorKind::Unsupported`] if the messages are in a store
    /// that takes no transaction from outside (use [`fence`](Term::fence) then); otherwise what the database answered:
    /// nothing is committed then, unless it is [`ErrorKind::OutcomeUnknown`].
    pub async fn commit(&self, transaction: &mut impl SqlExecutor) -> Result<()> {
        if let Err(refused) = self.check_in(transaction).await {
            // What cannot be rolled back any more is not committed either.
            let _ = transaction.execute("ROLLBACK", &[]).await;
            return Err(refused);
        }
        let committed = transaction.execute("COMMIT", &[]).await;
        if committed.is_err() {
            // Not left open, with its locks, on a connection that the caller may keep.
            let _ = transaction.execute("ROLLBACK", &[]).await;
        }
        committed.map(drop)
    }

    async fn check_in(&self, transaction: &mut impl SqlExecutor) -> Result<()> {
        self.check()?;
        let (fencing, endpoint) = self.inner.identity.row.as_ref().ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                "the messages are in a store without fences: nothing can be committed with one",
            )
        })?;
        let guard = FenceGuard { endpoint: Arc::clone(endpoint), fence: self.inner.identity.fence };
        fencing.check_in(transaction, &guard).await
    }

    /// A token that is cancelled when the term is lost. Cancelling it yourself loses nothing.
    pub fn lost(&self) -> CancellationToken {
        self.inner.lost.child_token()
    }

    /// Returns when the term is lost.
    pub async fn cancelled(&self) {
        self.inner.lost.cancelled().await;
    }

    /// Whether something new may be begun. Closed by half a lease without a confirmed renewal, by a clock that
    /// jumped, by a shutdown, and by the loss; what is in flight goes on and may settle until the loss.
    pub fn intake_open(&self) -> bool {
        let now = self.inner.clock.now().as_nanos();
        now < self.inner.intake_until.load(Ordering::Acquire)
            && now < self.inner.owned_until.load(Ordering::Acquire)
            && !self.inner.drain.is_cancelled()
    }

    /// Returns when something new may be begun.
    pub async fn intake_opened(&self) {
        self.intake_becomes(true).await;
    }

    /// Returns when nothing new may be begun. By the keeper's word: whoever begins something asks
    /// [`intake_open`](Term::intake_open) as well, which goes by the clock.
    pub async fn intake_closed(&self) {
        self.intake_becomes(false).await;
    }

    async fn intake_becomes(&self, open: bool) {
        loop {
            let mut changed = pin!(self.inner.intake.notified());
            // Registered before asking, so that no change in between is missed.
            changed.as_mut().enable();
            if self.intake_open() == open {
                return;
            }
            changed.await;
        }
    }

    /// A token that is cancelled when the run is asked to take in no more, finish, and hand over.
    pub fn draining(&self) -> CancellationToken {
        self.inner.drain.child_token()
    }

    /// A token that is cancelled when handlers that still run have to be dropped.
    pub fn cut(&self) -> CancellationToken {
        self.inner.cut.child_token()
    }

    /// Runs blocking work on a thread where it may block, and keeps the term's end waiting for it.
    pub(crate) async fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        self.check()?;
        self.inner.blocking.spawn_blocking(work).await.map_err(|stopped| {
            Error::new(ErrorKind::Handler, "blocking work did not come to its end").caused_by(stopped)
        })
    }

    /// Tells the keeper that the message store refused a write of this term for its fence: another term is in force.
    pub fn fenced_off(&self) {
        self.lose();
        let _ = self.inner.keeper.send(Event::FencedOff { run: self.inner.identity.run });
    }

    pub(super) fn run(&self) -> RunId {
        self.inner.identity.run
    }

    /// Moves the deadlines, unless the term is over.
    pub(super) fn extend(&self, deadlines: Deadlines) {
        let moved = self.inner.owned_until.fetch_update(Ordering::AcqRel, Ordering::Acquire, |until| {
            (until != OVER).then_some(deadlines.owned_until.as_nanos().max(1))
        });
        if moved.is_ok() {
            self.inner.intake_until.store(deadlines.intake_until.as_nanos(), Ordering::Release);
            self.inner.intake.notify_waiters();
        }
    }

    pub(super) fn close_intake(&self) {
        self.inner.intake_until.store(0, Ordering::Release);
        self.inner.intake.notify_waiters();
    }

    pub(super) fn lose(&self) {
        self.inner.owned_until.store(OVER, Ordering::Release);
        self.inner.lost.cancel();
        self.inner.intake.notify_waiters();
    }

    pub(super) fn cut_now(&self) {
        self.inner.cut.cancel();
    }

    pub(super) fn drain(&self) {
        self.inner.drain.cancel();
        self.inner.intake.notify_waiters();
    }

    pub(super) fn drop_run(&self) {
        self.inner.dropped.cancel();
    }

    /// Returns when the future of the whole run has to be dropped.
    pub(super) async fn run_dropped(&self) {
        self.inner.dropped.cancelled().await;
    }

    /// Returns when nothing that was given to [`Term::spawn_blocking`] executes any more.
    pub(super) async fn blocking_ended(&self) {
        self.inner.blocking.close();
        self.inner.blocking.wait().await;
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("lock", &self.inner.identity.lock)
            .field("fence", &self.inner.identity.fence)
            .field("owner", &self.inner.identity.owner)
            .finish_non_exhaustive()
    }
}
