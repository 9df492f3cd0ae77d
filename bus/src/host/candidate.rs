//! How a singleton's term becomes a pump: one consumer and one pump for each term, ended when the term does.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::start::{self, Common};
use super::wiring::{Planned, PlannedLock};
use crate::contract::{ConsumerSpec, LockManager};
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;
use crate::pump::{PumpEnd, Signals};
use crate::singleton::{HandOver, Keeper, Lock, OnOverrun, Standing, Stop, Term, candidate};

/// A singleton that is ready to compete for its lock.
pub(super) struct Candidate {
    common: Arc<Common>,
    planned: Planned,
    endpoint: Arc<Endpoint>,
    lock: Lock,
    lock_lease: std::time::Duration,
}

impl Candidate {
    pub(super) fn new(
        common: &Arc<Common>,
        mut planned: Planned,
        planned_lock: &PlannedLock,
        locks: &Arc<dyn LockManager>,
        on_overrun: OnOverrun,
    ) -> Result<Self> {
        let endpoint = Arc::new(planned.processor.endpoint.clone());
        let lock_lease = planned_lock.timing.lock_lease();
        let mut lock = Candidate::lock(locks, planned_lock, planned.processor.name)?
            .on_overrun(on_overrun)
            .noted(whereabouts());
        if let Some(fencing) = common.stores.transport(planned.processor.transport)?.capabilities().fencing {
            lock = lock.fenced(fencing, Arc::clone(&endpoint));
        } else {
            // Where the store cannot fence, a claim must not outlive the lock: its successor would not get it.
            planned.settings.lease = planned.settings.lease.min(lock_lease);
        }
        common.board.competes(&planned, &lock, common.clock.now());
        Ok(Candidate { common: Arc::clone(common), planned, endpoint, lock, lock_lease })
    }

    /// The lock, if the manager takes what was planned.
    pub(super) fn lock(locks: &Arc<dyn LockManager>, planned: &PlannedLock, name: &str) -> Result<Lock> {
        Ok(Lock::new(Arc::clone(locks), planned.id.clone(), planned.timing)?.named(name))
    }

    /// Competes for the lock, and pumps for as long as it is held, until the host stops. Answers how the last run ended; its
    /// lock may still be on its way back to the store, which the keeper sees to.
    pub(super) async fn run(self, keeper: Arc<Keeper>) -> PumpEnd {
        // What is left when the grace period is over is cut by the host's own signal, which the pump answers when it
        // has joined its workers. Dropping the run instead would not join them.
        let stop = Stop { drain: self.common.signals.stop.clone(), ..Stop::default() };
        let last = Arc::new(Mutex::new(PumpEnd::Clean));
        let run_has_ended = run_has_ended(self.common.signals.stop.clone(), self.lock.standing());
        let (lock, this) = (self.lock.clone(), Arc::new(self));
        let noted = Arc::clone(&last);
        let competing =
            candidate(&keeper, lock, stop, move |term| Arc::clone(&this).term(term, Arc::clone(&noted)));
        tokio::select! {
            biased;
            () = competing => {}
            () = run_has_ended => {}
        }
        last.lock().clone()
    }

    /// One term: notes how it ended, and says how to hand over.
    async fn term(self: Arc<Self>, term: Term, last: Arc<Mutex<PumpEnd>>) -> HandOver {
        let end = match self.pump(&term).await {
            Ok(end) => end,
            // Not this host's fault: the fence was raised by another term since, or went with the store's content. Trying
            // again would not bring it back; the next term raises its own.
            Err(error) if error.kind() == ErrorKind::TermLost => {
                tracing::warn!(target: "bus::singleton", endpoint = %self.endpoint, %error, "the term's fence is not in force any more: the lock is released");
                self.common.board.opens_no_more(&self.planned);
                return HandOver::Clean;
            }
            Err(error) => {
                self.common.board.cannot_open(&self.planned, error.kind());
                return HandOver::FailedToStart(error);
            }
        };
        *last.lock() = end.clone();
        match end {
            PumpEnd::Clean => HandOver::Clean,
            PumpEnd::Cut(messages) => {
                HandOver::Cut { reason: format!("{} runs were cut off", messages.len()) }
            }
            PumpEnd::Failed => HandOver::Cut { reason: "the pump failed".to_owned() },
        }
    }

    /// Opens the term's consumer and pumps until the term or the host ends it.
    async fn pump(&self, term: &Term) -> Result<PumpEnd> {
        let mut spec = ConsumerSpec::new(Arc::clone(&self.endpoint), self.planned.settings.lease);
        if self.lock.is_fenced() {
            spec = spec.fenced(term.fence(), self.lock_lease);
        }
        let pulse = spec.pulse.clone();
        self.common.board.opens(&self.planned, self.common.clock.now());
        let (draining, lost) = (term.draining(), term.lost());
        let consumer = tokio::select! {
            opened = start::open(&self.common, &self.planned, spec) => Some(opened?),
            // A store that does not answer holds up neither the term's end nor the host's.
            () = draining.cancelled() => None,
            () = lost.cancelled() => None,
            () = self.common.signals.stop.cancelled() => None,
        };
        let Some(consumer) = consumer else {
            // Nothing has been run.
            self.common.board.opens_no_more(&self.planned);
            return Ok(PumpEnd::Clean);
        };
        let signals = Signals::default();
        let mut pump = self.common.pump(
            &self.planned,
            &self.endpoint,
            (consumer, pulse),
            signals.clone(),
            Some(term.clone()),
        );
        tokio::select! {
            biased;
            end = pump.join() => Ok(end),
            never = pass_on(&self.common.signals, term, &signals) => Ok(never),
        }
    }
}

/// Returns when the host stops and the lock is being given back, which is not begun before its run has ended.
async fn run_has_ended(stop: CancellationToken, mut standing: watch::Receiver<Standing>) {
    stop.cancelled().await;
    if standing.wait_for(|standing| *standing == Standing::Releasing).await.is_err() {
        // Nobody competes any more: that is seen without this.
        std::future::pending::<()>().await;
    }
}

/// Passes on to a pump what the host and the term say; never ends by itself.
async fn pass_on(host: &Signals, term: &Term, pump: &Signals) -> PumpEnd {
    let (draining, lost, cut) = (term.draining(), term.lost(), term.cut());
    loop {
        tokio::select! {
            () = draining.cancelled(), if !pump.stop.is_cancelled() => pump.stop.cancel(),
            // The term will say so too; but a keeper that a lock manager blocks would say it too late.
            () = host.stop.cancelled(), if !pump.stop.is_cancelled() => pump.stop.cancel(),
            () = lost.cancelled(), if !pump.cancel.is_cancelled() => {
                pump.stop.cancel();
                pump.cancel.cancel();
            }
            () = host.cancel.cancelled(), if !pump.cancel.is_cancelled() => pump.cancel.cancel(),
            () = cut.cancelled(), if !pump.cut.is_cancelled() => pump.cut.cancel(),
            () = host.cut.cancelled(), if !pump.cut.is_cancelled() => pump.cut.cancel(),
            else => std::future::pending::<()>().await,
        }
    }
}

/// Where this process is, for whoever asks who holds a lock.
pub(super) fn whereabouts() -> String {
    let pid = std::process::id();
    #[cfg(unix)]
    let place = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let place = std::env::var("COMPUTERNAME").unwrap_or_default();
    format!("process {pid} on {place}")
}
