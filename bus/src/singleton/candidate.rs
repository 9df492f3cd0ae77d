//! Competing for a lock, from the side of what is to run under it.
//!
//! The deciding is done in the keeper's thread, because the runtime that handlers run on may be saturated just when a
//! lease has to be renewed. What is left for here is to start a run, to wait for its end, and to say so: the one
//! message that everything rests on.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::keeper::Keeper;
use super::machine::Standing;
use super::term::Term;
use super::timing::LockTiming;
use crate::contract::{Fencing, LockId, LockManager, Pulse};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Endpoint;

/// How a run ended. A run has ended when nothing of it executes any more; only then may it say so.
#[derive(Debug)]
pub enum HandOver {
    /// All that it had taken in is settled, and the store has confirmed it: a successor may start at once.
    Clean,
    /// It was cut short. Its successor waits until the lease has run out.
    Cut {
        /// Recorded with the lock, for people.
        reason: String,
    },
    /// It could not start, and took nothing in. Tried again a few times; then the lock is given up to others.
    FailedToStart(Error),
}

/// What to do about a run that was cut and does not end before its lease does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnOverrun {
    /// Say so. Its late writes are refused by their fence.
    #[default]
    Log,
    /// End the process, before a successor can start.
    Exit,
}

impl fmt::Display for OnOverrun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnOverrun::Log => "log",
            OnOverrun::Exit => "exit",
        })
    }
}

/// The exit code of a process that was ended by [`OnOverrun::Exit`].
pub const OVERRUN_EXIT_CODE: i32 = 70;

/// What a candidate competes for, and under which terms.
#[derive(Clone)]
pub struct Lock {
    pub(super) manager: Arc<dyn LockManager>,
    pub(super) id: LockId,
    pub(super) timing: LockTiming,
    pub(super) fenced: Option<(Arc<dyn Fencing>, Arc<Endpoint>)>,
    pub(super) on_overrun: OnOverrun,
    pub(super) name: String,
    pub(super) note: Vec<u8>,
    pub(super) standing: watch::Sender<Standing>,
    pub(super) pulse: Pulse,
}

impl Lock {
    /// The lock `id` of `manager`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if the times do not fit together ([`LockTiming::checked`]), or if the lock manager cannot
    /// hold such a lease.
    pub fn new(manager: Arc<dyn LockManager>, id: LockId, timing: LockTiming) -> Result<Self> {
        let can = manager.guarantees();
        let lease = timing.lock_lease();
        if !can.leases.contains(lease) {
            return Err(Error::new(
                ErrorKind::Config,
                format!("lock_lease is {lease:?}; this lock manager takes leases of {}", can.leases),
            )
            .with("lock", &id)
            .with("locks", can.authority));
        }
        let timing =
            timing.poll_every_unless_set(can.poll).checked().map_err(|error| error.with("lock", &id))?;
        let name = id.to_string();
        let standing = watch::Sender::new(Standing::Standby);
        Ok(Lock {
            manager,
            id,
            timing,
            fenced: None,
            on_overrun: OnOverrun::default(),
            name,
            note: Vec::new(),
            standing,
            pulse: Pulse::default(),
        })
    }

    /// Raises the endpoint's row in its message store before each term starts. Without it, only the lock's own clock
    /// stands between a late write and its successor.
    #[must_use]
    pub fn fenced(mut self, fencing: Arc<dyn Fencing>, endpoint: Arc<Endpoint>) -> Self {
        self.fenced = Some((fencing, endpoint));
        self
    }

    /// Whether each term raises a fence in the message store.
    pub fn is_fenced(&self) -> bool {
        self.fenced.is_some()
    }

    /// What to do about a run that was cut and does not end.
    #[must_use]
    pub fn on_overrun(mut self, on_overrun: OnOverrun) -> Self {
        self.on_overrun = on_overrun;
        self
    }

    /// What runs under the lock, as people call it; the lock's id otherwise.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// What is kept with the lock while it is held, for people who ask who that is: up to 1 KiB.
    #[must_use]
    pub fn noted(mut self, note: impl Into<Vec<u8>>) -> Self {
        self.note = note.into();
        self
    }

    /// Where this candidate stands, and each change of it.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// When the lock's store last gave this candidate a definite answer.
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Its times.
    pub fn timing(&self) -> LockTiming {
        self.timing
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("timing", &self.timing)
            .field("fenced", &self.fenced.as_ref().map(|(_, endpoint)| endpoint))
            .field("on_overrun", &self.on_overrun)
            .finish_non_exhaustive()
    }
}

/// How a candidate is told to stop.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// Cancelled: take in no more, finish what is in flight, release. The lock is kept for as long as that takes.
    pub drain: CancellationToken,
    /// Cancelled, as the last act of the process: a run that still goes on is dropped, and its lock released as cut.
    pub last_act: CancellationToken,
}

/// Competes for `lock` until it is told to stop, and calls `run` once for each term, never twice at a time.
///
/// Errors of the lock manager are retried, with jitter, for ever; a panic in `run` is the end of that run and no more.
/// Dropping the returned future drops a run, too, and releases its lock as cut. It returns when the lock has been
/// given back, or when nothing is left to try.
///
/// `run` is a closure that returns a future, rather than an async closure: the future of a function over
/// `AsyncFnMut` cannot be shown to be `Send` for every lifetime that such a closure lends (Rust 1.95), so that it
/// could not be spawned.
pub async fn candidate<F, R>(keeper: &Keeper, lock: Lock, stop: Stop, mut run: F)
where
    F: FnMut(Term) -> R,
    R: Future<Output = HandOver>,
{
    let mut desk = keeper.enter(lock, stop);
    while let Some(term) = desk.starts.recv().await {
        let hand_over = one_run(&mut run, &term).await;
        // Work that blocks cannot be dropped; until it has returned, the run has not ended.
        term.blocking_ended().await;
        desk.ended(term.run(), hand_over);
    }
}

async fn one_run<F, R>(run: &mut F, term: &Term) -> HandOver
where
    F: FnMut(Term) -> R,
    R: Future<Output = HandOver>,
{
    // A panic leaves `run` in whatever state it is; the next term calls it anew, as a restarted process would.
    let running = AssertUnwindSafe(async { run(term.clone()).await }).catch_unwind();
    tokio::select! {
        biased;
        ended = running => ended.unwrap_or_else(|_| HandOver::Cut { reason: "the run panicked".to_owned() }),
        () = term.run_dropped() => HandOver::Cut { reason: "dropped at the end of the process".to_owned() },
    }
}
