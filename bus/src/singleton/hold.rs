//! The driver of one machine: gives it events, carries out its actions, waits for nothing but the next event.
//!
//! Every call of the lock manager is a task of its own, so that one that hangs keeps nothing else from happening: not
//! the next try, and least of all the loss. Timers only make it look at the clock; the machine decides.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::candidate::{HandOver, Lock, OVERRUN_EXIT_CODE, OnOverrun, Stop};
use super::machine::{Machine, Standing};
use super::protocol::{Action, EndedAs, Event, Given, Notice, RunId, RunOutcome, Ticket};
use super::term::{Identity, Term};
use crate::clock::Clock;
use crate::contract::{Ended, Fence, FenceClaim, Lease, Owner, Raised, Renewal};
use crate::error::Result;

/// Hints are not acted upon more often than this: a watch that returns at once, because its connection is broken,
/// must not become a loop of requests.
const BETWEEN_HINTS: Duration = Duration::from_millis(200);

/// An answer of the store, and the lease that came with it.
type Answer = (Event, Option<Arc<dyn Lease>>);

pub(super) struct Hold {
    lock: Lock,
    stop: Stop,
    abandon: CancellationToken,
    clock: Clock,
    machine: Machine,
    starts: mpsc::UnboundedSender<Term>,
    ends: mpsc::UnboundedReceiver<(RunId, HandOver)>,
    answers: (mpsc::UnboundedSender<Answer>, mpsc::UnboundedReceiver<Answer>),
    from_term: (mpsc::UnboundedSender<Event>, mpsc::UnboundedReceiver<Event>),
    requests: JoinSet<()>,
    /// What was won under the present owner: more than one only if an answer came twice.
    leases: Vec<Arc<dyn Lease>>,
    term: Running,
    cut_reason: String,
    told_to_drain: bool,
    told_last_act: bool,
    told_standby: bool,
    candidate_gone: bool,
    hint: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    last_hint: Option<tokio::time::Instant>,
}

/// The run that is on. Should the driver end without having seen its end, the term is over all the same.
#[derive(Default)]
struct Running(Option<Term>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(term) = &self.0 {
            term.lose();
            term.cut_now();
        }
    }
}

impl Hold {
    pub(super) fn new(
        lock: Lock,
        stop: Stop,
        abandon: CancellationToken,
        clock: Clock,
        starts: mpsc::UnboundedSender<Term>,
        ends: mpsc::UnboundedReceiver<(RunId, HandOver)>,
    ) -> Self {
        let machine = Machine::new(lock.timing);
        Hold {
            lock,
            stop,
            abandon,
            clock,
            machine,
            starts,
            ends,
            answers: mpsc::unbounded_channel(),
            from_term: mpsc::unbounded_channel(),
            requests: JoinSet::new(),
            leases: Vec::new(),
            term: Running::default(),
            cut_reason: String::new(),
            told_to_drain: false,
            told_last_act: false,
            told_standby: false,
            candidate_gone: false,
            hint: None,
            last_hint: None,
        }
    }

    /// Drives the machine until it has finished.
    pub(super) async fn keep(mut self) {
        let mut events = VecDeque::from([Event::Tick]);
        loop {
            while let Some(event) = events.pop_front() {
                self.remark(&event);
                let given = self.given();
                for action in self.machine.step(given, event) {
                    if matches!(action, Action::Finished) {
                        self.lock.standing.send_replace(Standing::Finished);
                        return;
                    }
                    self.act(action, &mut events);
                }
            }
            let standing = self.machine.standing();
            self.lock.standing.send_if_modified(|before| std::mem::replace(before, standing) != standing);
            while self.requests.try_join_next().is_some() {}
            let event = self.next_event().await;
            events.push_back(event);
        }
    }

    fn given(&self) -> Given {
        let wall = u64::try_from(self.clock.wall().as_micros()).unwrap_or(0).saturating_mul(1000);
        let jitter = fastrand::f64() * 2.0 - 1.0;
        Given { now: self.clock.now(), wall, owner: *Owner::fresh().as_uuid(), jitter }
    }

    /// How long to wait for an event before looking at the clock: never longer than a slice, since the machine's clock
    /// may go on unseen by any timer. Tokio's does not.
    fn longest_wait(&self) -> Duration {
        let slice = if self.clock.is_virtual() { Duration::MAX } else { self.lock.timing.slice() };
        self.machine.wakes_at().map_or(slice, |at| at.since(self.clock.now()).min(slice))
    }

    /// Waits for whatever happens first.
    async fn next_event(&mut self) -> Event {
        let wait = self.longest_wait();
        self.prepare_hint();
        tokio::select! {
            biased;
            () = self.abandon.cancelled() => Event::Abandon,
            () = self.stop.last_act.cancelled(), if !self.told_last_act => {
                self.told_last_act = true;
                Event::LastAct
            }
            () = self.stop.drain.cancelled(), if !self.told_to_drain => {
                self.told_to_drain = true;
                Event::Stop
            }
            Some(event) = self.from_term.1.recv() => event,
            ended = self.ends.recv(), if !self.candidate_gone => match ended {
                Some((run, hand_over)) => self.run_ended(run, hand_over),
                None => self.candidate_went(),
            },
            Some((event, lease)) = self.answers.1.recv() => {
                self.leases.extend(lease);
                event
            }
            () = wait_for(&mut self.hint) => {
                self.hint = None;
                self.last_hint = Some(tokio::time::Instant::now());
                Event::Freed
            }
            () = tokio::time::sleep(wait) => Event::Tick,
        }
    }

    fn prepare_hint(&mut self) {
        if !self.machine.wants_hint() {
            self.hint = None;
        } else if self.hint.is_none() {
            let (manager, id) = (Arc::clone(&self.lock.manager), self.lock.id.clone());
            let not_before = self.last_hint.map(|last| last + BETWEEN_HINTS);
            self.hint = Some(Box::pin(async move {
                if AssertUnwindSafe(manager.watch(&id)).catch_unwind().await.is_err() {
                    // The poll stands behind it.
                    std::future::pending::<()>().await;
                }
                if let Some(not_before) = not_before {
                    tokio::time::sleep_until(not_before).await;
                }
            }));
        }
    }

    fn run_ended(&mut self, run: RunId, hand_over: HandOver) -> Event {
        let lock = &self.lock.id;
        let outcome = match hand_over {
            HandOver::Clean => RunOutcome::Clean,
            HandOver::Cut { reason } => {
                tracing::warn!(target: "bus::singleton", %lock, %reason, "the singleton's run was cut short");
                self.cut_reason = reason;
                RunOutcome::Cut
            }
            HandOver::FailedToStart(error) => {
                tracing::error!(target: "bus::singleton", %lock, %error, "the singleton's run could not start");
                RunOutcome::FailedToStart
            }
        };
        if let Some(term) = self.term.0.take_if(|term| term.run() == run) {
            // Whoever kept a clone of the term finds it over.
            term.lose();
        }
        Event::RunEnded { run, outcome }
    }

    /// The candidate's future was dropped, and its run with it. What it left on other threads is waited for.
    fn candidate_went(&mut self) -> Event {
        self.candidate_gone = true;
        self.told_to_drain = true;
        if let Some(term) = self.term.0.take() {
            term.lose();
            self.cut_reason = "the candidate was dropped".to_owned();
            let answers = self.answers.0.clone();
            self.requests.spawn(async move {
                term.blocking_ended().await;
                let ended = Event::RunEnded { run: term.run(), outcome: RunOutcome::Cut };
                let _ = answers.send((ended, None));
            });
        }
        Event::Stop
    }

    fn act(&mut self, action: Action, events: &mut VecDeque<Event>) {
        match action {
            Action::Acquire { ticket, owner } => self.acquire(ticket, owner),
            Action::Renew { ticket, owner, fence } => self.renew(ticket, owner, fence),
            Action::RaiseFence { ticket, fence } => self.raise_fence(ticket, fence, events),
            Action::Release { ticket, owner, fence, ended } => self.release(ticket, owner, fence, ended),
            Action::Withdraw { ticket, owner } => {
                let (manager, id) = (Arc::clone(&self.lock.manager), self.lock.id.clone());
                self.ask(Event::ReleaseUnknown { ticket }, async move {
                    manager.give_up(&id, Owner::from(owner)).await?;
                    Ok((Event::Released { ticket }, None))
                });
            }
            Action::StartRun { run, fence, deadlines } => {
                let owner = self.leases.last().map_or_else(Owner::fresh, |lease| lease.lease_id());
                let identity = Identity {
                    lock: self.lock.id.clone(),
                    owner,
                    fence: Fence::new(fence),
                    run,
                    row: self.lock.fenced.clone(),
                };
                let term = Term::new(identity, self.clock.clone(), deadlines, self.from_term.0.clone());
                // Told only while it is true, so that whoever listens never hears of two holders at once.
                if term.check().is_ok() {
                    tracing::info!(target: "bus::singleton", event = "lock.acquired", lock = %self.lock.id, name = %self.lock.name, fence, "the singleton starts");
                }
                self.leave_note(owner, fence);
                self.told_standby = false;
                self.term.0 = Some(term.clone());
                if self.starts.send(term).is_err() {
                    // The candidate has just gone, and nothing was started.
                    self.term.0 = None;
                    events.push_back(Event::RunEnded { run, outcome: RunOutcome::Clean });
                }
            }
            Action::Extend { run, deadlines } => self.with_term(run, |term| term.extend(deadlines)),
            Action::Doubt { run, doubt } => {
                tracing::warn!(target: "bus::singleton", lock = %self.lock.id, name = %self.lock.name, ?doubt, "the singleton takes in nothing until its lock is confirmed");
                self.with_term(run, Term::close_intake);
            }
            Action::Lose { run, cause } => {
                tracing::error!(target: "bus::singleton", event = "lock.lost", lock = %self.lock.id, name = %self.lock.name, fence = self.fence(), ?cause, "the singleton has lost its lock");
                self.with_term(run, Term::lose);
            }
            Action::Cut { run } => {
                tracing::warn!(target: "bus::singleton", lock = %self.lock.id, name = %self.lock.name, "the singleton's handlers are dropped");
                self.with_term(run, Term::cut_now);
            }
            Action::Overrun { run } => self.overrun(run),
            Action::Drain { run } => self.with_term(run, Term::drain),
            Action::DropRun { run } => self.with_term(run, |term| {
                term.cut_now();
                term.drop_run();
            }),
            Action::Tell(notice) => self.tell(notice),
            Action::Finished => {}
        }
    }

    /// The fence of the current run, for events; 0 where there is none.
    fn fence(&self) -> u64 {
        self.term.0.as_ref().map_or(0, |term| term.fence().get())
    }

    fn with_term(&self, run: RunId, act: impl FnOnce(&Term)) {
        if let Some(term) = &self.term.0
            && term.run() == run
        {
            act(term);
        }
    }

    /// Asks the store, in a task of its own; an error, a panic or no answer within half a lease is told as `unknown`.
    fn ask(&mut self, unknown: Event, request: impl Future<Output = Result<Answer>> + Send + 'static) {
        let answers = self.answers.0.clone();
        let limit = self.lock.timing.lock_lease() / 2;
        let lock = self.lock.id.clone();
        self.requests.spawn(async move {
            let request = AssertUnwindSafe(request).catch_unwind();
            let answer = match tokio::time::timeout(limit, request).await {
                Ok(Ok(Ok(answer))) => answer,
                Ok(Ok(Err(error))) => {
                    tracing::warn!(target: "bus::singleton", %lock, %error, "the lock's store answers with an error");
                    (unknown, None)
                }
                Ok(Err(_)) => {
                    tracing::error!(target: "bus::singleton", %lock, "the lock manager panicked");
                    (unknown, None)
                }
                Err(_) => {
                    tracing::warn!(target: "bus::singleton", %lock, ?limit, "the lock's store does not answer");
                    (unknown, None)
                }
            };
            let _ = answers.send(answer);
        });
    }

    fn acquire(&mut self, ticket: Ticket, owner: Uuid) {
        self.leases.retain(|lease| *lease.lease_id().as_uuid() == owner);
        let (manager, id) = (Arc::clone(&self.lock.manager), self.lock.id.clone());
        let lock_lease = self.lock.timing.lock_lease();
        self.ask(Event::AcquireUnknown { ticket }, async move {
            Ok(match manager.try_lock(&id, lock_lease, Owner::from(owner)).await? {
                Some(lease) => {
                    let fence = lease.fence().get();
                    (Event::Acquired { ticket, fence }, Some(Arc::from(lease)))
                }
                None => (Event::HeldElsewhere { ticket }, None),
            })
        });
    }

    /// Has the lock say who holds it. Nothing depends on it.
    fn leave_note(&mut self, owner: Owner, fence: u64) {
        if self.lock.note.is_empty() {
            return;
        }
        let Some(lease) = self.lease(*owner.as_uuid(), fence) else { return };
        let (note, lock) = (self.lock.note.clone(), self.lock.id.clone());
        self.requests.spawn(async move {
            if let Err(error) = lease.note(note).await {
                tracing::debug!(target: "bus::singleton", %lock, %error, "the lock does not say who holds it");
            }
        });
    }

    /// Says once, after each term and at the beginning, that somebody else holds the lock.
    fn remark(&mut self, event: &Event) {
        if matches!(
            event,
            Event::Acquired { .. }
                | Event::HeldElsewhere { .. }
                | Event::Renewed { .. }
                | Event::RenewalRefused { .. }
                | Event::Released { .. }
        ) {
            self.lock.pulse.beat(self.clock.now(), self.lock.timing.longest_silence());
        }
        if matches!(event, Event::HeldElsewhere { .. }) && !self.told_standby {
            self.told_standby = true;
            tracing::info!(target: "bus::singleton", event = "lock.standby", lock = %self.lock.id, name = %self.lock.name, "standing by: the lock is held elsewhere");
            self.compare_leases();
        }
    }

    /// Says so if the holder's lock lasts for another time than ours would, since the holder's time binds us too.
    /// Nothing depends on it, so that a store which cannot say is asked no further.
    fn compare_leases(&mut self) {
        let (manager, lock, name) =
            (Arc::clone(&self.lock.manager), self.lock.id.clone(), self.lock.name.clone());
        let ours = self.lock.timing.lock_lease();
        self.requests.spawn(async move {
            let Ok(Some(record)) = manager.inspect(&lock).await else { return };
            // The last term's record: the present holder has not written its own yet.
            if record.ended == Some(Ended::Clean) {
                return;
            }
            let theirs = record.lock_lease;
            if theirs != ours {
                let holder = String::from_utf8_lossy(&record.note);
                tracing::warn!(target: "bus::singleton", event = "lock.lease_differs", %lock, %name, ?ours, ?theirs, ?holder,
                    "the holder of the lock has another lock_lease than this host, and while it holds the lock, that counts; \
                     configure the same on all hosts"
                );
            }
        });
    }

    fn lease(&self, owner: Uuid, fence: u64) -> Option<Arc<dyn Lease>> {
        self.leases
            .iter()
            .find(|lease| *lease.lease_id().as_uuid() == owner && lease.fence().get() == fence)
            .map(Arc::clone)
    }

    fn renew(&mut self, ticket: Ticket, owner: Uuid, fence: u64) {
        // Without a lease there is nothing to ask; the deadline then does what a hanging renewal would.
        let Some(lease) = self.lease(owner, fence) else { return };
        self.ask(Event::RenewalUnknown { ticket }, async move {
            Ok(match lease.renew().await? {
                Renewal::Held => (Event::Renewed { ticket }, None),
                Renewal::Lost => (Event::RenewalRefused { ticket }, None),
            })
        });
    }

    fn raise_fence(&mut self, ticket: Ticket, fence: u64, events: &mut VecDeque<Event>) {
        let Some((fencing, endpoint)) = &self.lock.fenced else {
            // Nothing to raise: whoever built this lock has said what that means.
            events.push_back(Event::FenceRaised { ticket });
            return;
        };
        let claim = FenceClaim::new(
            Arc::clone(endpoint),
            &self.lock.manager.guarantees().authority,
            &self.lock.id,
            Fence::new(fence),
            self.lock.timing.lock_lease(),
        );
        let (fencing, name) = (Arc::clone(fencing), self.lock.id.clone());
        self.ask(Event::FenceUnknown { ticket }, async move {
            let event = match fencing.raise(claim).await? {
                Raised::Raised => Event::FenceRaised { ticket },
                Raised::Outdated { in_force } => {
                    tracing::warn!(target: "bus::singleton", lock = %name, fence, %in_force, "a higher fence is in force");
                    Event::FenceOutrun { ticket }
                }
                Raised::OtherLock { lock: other, free_in } => {
                    tracing::debug!(target: "bus::singleton", lock = %name, %other, ?free_in, "the endpoint is bound to another lock");
                    Event::FenceHeldByOtherLock { ticket, free_in }
                }
            };
            Ok((event, None))
        });
    }

    fn release(&mut self, ticket: Ticket, owner: Uuid, fence: u64, ended: EndedAs) {
        let ended = match ended {
            EndedAs::Clean => Ended::Clean,
            EndedAs::Cut => Ended::Cut(self.cut_reason.clone()),
        };
        let Some(lease) = self.lease(owner, fence) else { return };
        self.ask(Event::ReleaseUnknown { ticket }, async move {
            lease.release(ended).await?;
            Ok((Event::Released { ticket }, None))
        });
    }

    fn overrun(&self, run: RunId) {
        let lock = &self.lock.id;
        tracing::error!(target: "bus::singleton", %lock, name = %self.lock.name, run = run.0, "the singleton was cut and does not end; its late writes will be refused");
        if self.lock.on_overrun == OnOverrun::Exit {
            tracing::error!(target: "bus::singleton", %lock, "the process ends, before another one starts the singleton");
            std::process::exit(OVERRUN_EXIT_CODE);
        }
    }

    fn tell(&self, notice: Notice) {
        let lock = &self.lock.id;
        match notice {
            Notice::Won { fence } => {
                tracing::debug!(target: "bus::singleton", %lock, fence, "the lock is won")
            }
            Notice::WaitingForOtherLock { free_in } => {
                tracing::warn!(target: "bus::singleton", %lock, ?free_in,
                    "the endpoint is bound to another lock (a renamed id, a group, another lock manager?); waiting until \
                     that lock is not used any more"
                )
            }
            Notice::Outrun { fence } => {
                tracing::warn!(target: "bus::singleton", %lock, fence, "the endpoint already has a higher fence")
            }
            Notice::LostBeforeStart { cause } => {
                tracing::warn!(target: "bus::singleton", %lock, ?cause, "the lock was lost before the singleton had started");
            }
            Notice::StartGivenUp { rounds } => {
                tracing::error!(target: "bus::singleton", %lock, rounds, "the singleton keeps failing to start here; its lock is given up");
            }
            Notice::Released { fence, ended } => {
                tracing::info!(target: "bus::singleton", event = "lock.released", %lock, fence, ?ended, "the lock is released")
            }
            Notice::LeftToExpire => {
                tracing::warn!(target: "bus::singleton", %lock, "the lock was not released; its lease runs out")
            }
        }
    }
}

/// Returns when the future, if there is one, does.
async fn wait_for(future: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>) {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
