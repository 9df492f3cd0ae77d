//! The singleton protocol as a pure state machine: win, hold, doubt, lose and hand over one lock.
//!
//! ```text
//!            HeldElsewhere                    FenceRaised                      RunEnded
//!  Standby ⇄ Acquiring ──Acquired──► Preparing ──────────► Running ─────────────────────► Releasing ─► Standby
//!                 │                      │                    │ Held → Doubtful → Lost → cut  ▲          or
//!                 └── gives up ──────────┴────────────────────┴───────────────────────────────┘        Finished
//! ```
//!
//! The order inside [`Machine::step`] is a promise: time is applied before the event is, so that an answer which
//! is read after the deadline finds the term lost, however early it was sent. Nothing revives a lost term; there
//! is only a fresh acquisition with a higher fence, and that only after the run of the old one was joined.
//!
//! What may be changed: anything the simulation still accepts. What may not: reading a clock, drawing a random
//! number, waiting for anything.

use std::time::Duration;

use uuid::Uuid;

use super::holding::{Holding, Work};
use super::protocol::{Action, EndedAs, Event, Given, LossCause, Notice, RunId, RunOutcome, Ticket};
use super::timing::LockTiming;
use crate::clock::BootInstant;

/// One candidate for one lock.
#[derive(Debug)]
pub struct Machine {
    pub(super) timing: LockTiming,
    state: State,
    stopping: bool,
    tickets: u64,
    runs: u64,
    /// Wall minus boot clock at the previous step.
    clock_offset: Option<i128>,
    /// Failed starts in a row under the current lock.
    failed_starts: u32,
    /// How many times in a row the lock was given up for failed starts.
    given_up: u32,
}

/// Where a candidate stands, for those who want to look: health, a dashboard, a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Somebody else holds the lock, or nobody has been asked yet.
    Standby,
    /// The lock was asked for, and there is no definite answer yet.
    Acquiring,
    /// The lock is held; the fence is not raised yet, or a failed start waits for its next try.
    Preparing,
    /// A run is on, and the lock is confirmed.
    Held,
    /// A run is on and takes nothing in.
    Doubtful,
    /// The term is over, its run has not ended yet.
    Lost,
    /// The run has ended and the lock is being given back.
    Releasing,
    /// It never asks for anything again.
    Finished,
}

#[derive(Debug)]
enum State {
    Standby { until: BootInstant, hint_counts: bool },
    Acquiring(Acquiring),
    Holding(Holding),
    Releasing(Releasing),
    Finished,
}

/// An acquisition without a definite answer.
#[derive(Debug)]
struct Acquiring {
    owner: Uuid,
    /// The latest request. Answers to earlier ones are not listened to: the clock counts from the latest.
    asked: Ticket,
    /// Whether the latest request may still be answered in time.
    waiting: bool,
    tries: u32,
    again_at: BootInstant,
}

/// A lock that is given back.
#[derive(Debug)]
struct Releasing {
    owner: Uuid,
    /// Fence and end of a term; `None`: an acquire of unknown outcome is withdrawn.
    term: Option<(u64, EndedAs)>,
    asked: Option<Ticket>,
    tries: u32,
    again_at: BootInstant,
    /// From here on the lease has expired by itself.
    pointless_at: BootInstant,
    then: Then,
}

/// What follows a release.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    /// Candidate again after the usual pause.
    Poll,
    /// Candidate again after a pause that hints do not shorten.
    BackOff(Duration),
}

/// What a [`Holding`] decided about itself.
pub(super) enum Outcome {
    Stays,
    /// Nothing runs and the lock should be given back.
    Release(EndedAs, Then),
    /// Nothing runs and there is nothing left to give back.
    Gone,
}

impl Machine {
    /// A candidate that asks for the lock in its first step.
    pub fn new(timing: LockTiming) -> Self {
        Machine {
            timing,
            state: State::Standby { until: BootInstant::from_nanos(0), hint_counts: true },
            stopping: false,
            tickets: 0,
            runs: 0,
            clock_offset: None,
            failed_starts: 0,
            given_up: 0,
        }
    }

    /// Where it stands.
    pub fn standing(&self) -> Standing {
        match &self.state {
            State::Standby { .. } => Standing::Standby,
            State::Acquiring(_) => Standing::Acquiring,
            State::Holding(holding) => holding.standing(),
            State::Releasing(_) => Standing::Releasing,
            State::Finished => Standing::Finished,
        }
    }

    /// Whether a hint that the lock was freed would be acted upon, so that watching for one is worth the cost.
    pub fn wants_hint(&self) -> bool {
        matches!(self.state, State::Standby { hint_counts: true, .. })
    }

    /// When to send the next [`Event::Tick`] if nothing else happens. `None`: only an event goes on from here.
    pub fn wakes_at(&self) -> Option<BootInstant> {
        match &self.state {
            State::Standby { until, .. } => Some(*until),
            State::Acquiring(acquiring) if acquiring.waiting => {
                Some(acquiring.asked.sent + self.timing.attempt_timeout())
            }
            State::Acquiring(acquiring) => Some(acquiring.again_at),
            State::Holding(holding) => holding.wakes_at(&self.timing, self.stopping),
            State::Releasing(releasing) => Some(match releasing.asked {
                Some(asked) => asked.sent + self.timing.attempt_timeout(),
                None => releasing.again_at,
            }),
            State::Finished => None,
        }
    }

    /// Takes what happened and says what is to be done, in this order.
    pub fn step(&mut self, given: Given, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if matches!(self.state, State::Finished) {
            return actions;
        }
        let ends = matches!(event, Event::Stop | Event::LastAct | Event::Abandon);
        if ends && matches!(self.state, State::Standby { .. }) {
            // Also if a poll is due just now: nothing is begun that would have to be taken back.
            self.finish(&mut actions);
            return actions;
        }
        self.notice_clock_jump(&given, &mut actions);
        // Time first: an answer read after the deadline must find the term lost.
        self.pass_time(&given, &mut actions);
        self.take(&given, event, &mut actions);
        self.pass_time(&given, &mut actions);
        actions
    }

    fn notice_clock_jump(&mut self, given: &Given, actions: &mut Vec<Action>) {
        let offset = i128::from(given.wall) - i128::from(given.now.as_nanos());
        let before = self.clock_offset.replace(offset);
        let jumped =
            before.is_some_and(|before| before.abs_diff(offset) > self.timing.tolerated_jump().as_nanos());
        if jumped && let State::Holding(holding) = &mut self.state {
            holding.distrust_clock(given.now, self.tickets, actions);
        }
    }

    /// Applies everything that is due, until nothing is.
    fn pass_time(&mut self, given: &Given, actions: &mut Vec<Action>) {
        // Each round moves to another state or sends a request; a handful is the most that one instant can hold.
        for _ in 0..8 {
            let before = actions.len();
            let moved = self.pass_time_once(given, actions);
            if !moved && actions.len() == before {
                break;
            }
        }
    }

    /// Returns whether the state was left.
    fn pass_time_once(&mut self, given: &Given, actions: &mut Vec<Action>) -> bool {
        let now = given.now;
        match &mut self.state {
            State::Finished => false,
            State::Standby { .. } if self.stopping => {
                self.finish(actions);
                true
            }
            State::Standby { until, .. } => {
                let due = now >= *until;
                if due {
                    self.acquire(given, given.owner, 0, actions);
                }
                due
            }
            State::Acquiring(acquiring) => {
                if acquiring.waiting && now >= acquiring.asked.sent + self.timing.attempt_timeout() {
                    acquiring.unanswered(now, &self.timing, given.jitter);
                }
                if !acquiring.waiting && now >= acquiring.again_at {
                    let (owner, tries) = (acquiring.owner, acquiring.tries);
                    self.acquire(given, owner, tries, actions);
                }
                false
            }
            State::Holding(_) => {
                let outcome = self.with_holding(|holding, tools| holding.pass_time(given, tools, actions));
                self.leave_holding(given, outcome, actions)
            }
            State::Releasing(releasing) => {
                if let Some(asked) = releasing.asked
                    && now >= asked.sent + self.timing.attempt_timeout()
                {
                    releasing.unanswered(now, &self.timing);
                }
                if releasing.asked.is_some() {
                    return false;
                }
                if now >= releasing.pointless_at {
                    let then = releasing.then;
                    actions.push(Action::Tell(Notice::LeftToExpire));
                    self.stand_by(given, then);
                    return true;
                }
                if now >= releasing.again_at {
                    self.tickets += 1;
                    let ticket = Ticket { number: self.tickets, sent: now };
                    releasing.asked = Some(ticket);
                    let owner = releasing.owner;
                    actions.push(match releasing.term {
                        Some((fence, ended)) => Action::Release { ticket, owner, fence, ended },
                        None => Action::Withdraw { ticket, owner },
                    });
                }
                false
            }
        }
    }

    fn take(&mut self, given: &Given, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Tick => {}
            Event::Freed => {
                if self.wants_hint() && !self.stopping {
                    self.acquire(given, given.owner, 0, actions);
                }
            }
            Event::Acquired { ticket, fence } => {
                if let Some(owner) = self.asked_for(ticket) {
                    self.failed_starts = 0;
                    actions.push(Action::Tell(Notice::Won { fence }));
                    let next = ticket.sent + self.timing.until_renewal(given.jitter);
                    self.state = State::Holding(Holding::new(owner, fence, ticket, next));
                }
            }
            Event::HeldElsewhere { ticket } => {
                if self.asked_for(ticket).is_some() {
                    self.stand_by(given, Then::Poll);
                }
            }
            Event::AcquireUnknown { ticket } => {
                if let State::Acquiring(acquiring) = &mut self.state
                    && acquiring.asked == ticket
                    && acquiring.waiting
                {
                    acquiring.unanswered(given.now, &self.timing, given.jitter);
                }
            }
            Event::Released { ticket } => {
                if let State::Releasing(releasing) = &mut self.state
                    && releasing.asked == Some(ticket)
                {
                    let then = releasing.then;
                    if let Some((fence, ended)) = releasing.term {
                        actions.push(Action::Tell(Notice::Released { fence, ended }));
                    }
                    self.stand_by(given, then);
                }
            }
            Event::ReleaseUnknown { ticket } => {
                if let State::Releasing(releasing) = &mut self.state
                    && releasing.asked == Some(ticket)
                {
                    releasing.unanswered(given.now, &self.timing);
                }
            }
            Event::RunEnded { run, outcome } => self.run_ended(given, run, outcome, actions),
            Event::Stop => self.stop(given, actions),
            Event::LastAct => {
                self.stop(given, actions);
                if let State::Holding(holding) = &mut self.state {
                    holding.drop_run(actions);
                }
            }
            Event::Abandon => {
                if matches!(self.state, State::Holding(_) | State::Releasing(_)) {
                    actions.push(Action::Tell(Notice::LeftToExpire));
                }
                self.finish(actions);
            }
            Event::Renewed { .. }
            | Event::RenewalRefused { .. }
            | Event::RenewalUnknown { .. }
            | Event::FenceRaised { .. }
            | Event::FenceHeldByOtherLock { .. }
            | Event::FenceOutrun { .. }
            | Event::FenceUnknown { .. }
            | Event::Lapsed { .. }
            | Event::FencedOff { .. } => {
                let outcome = self.with_holding(|holding, tools| holding.take(given, event, tools, actions));
                self.leave_holding(given, outcome, actions);
            }
        }
    }

    /// The owner that was asked for, if this is the latest request and it is still undecided.
    fn asked_for(&self, ticket: Ticket) -> Option<Uuid> {
        match &self.state {
            // A late answer to the latest request is as good as a timely one.
            State::Acquiring(acquiring) if acquiring.asked == ticket => Some(acquiring.owner),
            _ => None,
        }
    }

    fn acquire(&mut self, given: &Given, owner: Uuid, tries: u32, actions: &mut Vec<Action>) {
        self.tickets += 1;
        let asked = Ticket { number: self.tickets, sent: given.now };
        actions.push(Action::Acquire { ticket: asked, owner });
        self.state = State::Acquiring(Acquiring { owner, asked, waiting: true, tries, again_at: given.now });
    }

    fn with_holding(&mut self, act: impl FnOnce(&mut Holding, &mut Tools<'_>) -> Outcome) -> Outcome {
        match &mut self.state {
            State::Holding(holding) => {
                let mut tools = Tools {
                    timing: &self.timing,
                    stopping: self.stopping,
                    tickets: &mut self.tickets,
                    runs: &mut self.runs,
                };
                act(holding, &mut tools)
            }
            _ => Outcome::Stays,
        }
    }

    fn leave_holding(&mut self, given: &Given, outcome: Outcome, actions: &mut Vec<Action>) -> bool {
        match outcome {
            Outcome::Stays => false,
            Outcome::Gone => {
                self.stand_by(given, Then::Poll);
                true
            }
            Outcome::Release(ended, then) => {
                self.release(given, ended, then, actions);
                true
            }
        }
    }

    fn release(&mut self, given: &Given, ended: EndedAs, then: Then, actions: &mut Vec<Action>) {
        let State::Holding(holding) = &self.state else { return };
        if holding.is_refused() {
            // The store has said that it is not ours: there is nothing to release.
            self.stand_by(given, then);
            return;
        }
        let pointless_at = self.timing.expires_at(holding.confirmed());
        if given.now >= pointless_at {
            actions.push(Action::Tell(Notice::LeftToExpire));
            self.stand_by(given, then);
            return;
        }
        self.state = State::Releasing(Releasing {
            owner: holding.owner(),
            term: Some((holding.fence(), ended)),
            asked: None,
            tries: 0,
            again_at: given.now,
            pointless_at,
            then,
        });
    }

    fn stand_by(&mut self, given: &Given, then: Then) {
        let (pause, hint_counts) = match then {
            Then::Poll => (self.timing.until_poll(given.jitter), true),
            Then::BackOff(pause) => (pause, false),
        };
        self.state = State::Standby { until: given.now + pause, hint_counts };
    }

    fn run_ended(&mut self, given: &Given, run: RunId, outcome: RunOutcome, actions: &mut Vec<Action>) {
        let State::Holding(holding) = &mut self.state else { return };
        if holding.run() != Some(run) {
            return;
        }
        let ended = if outcome == RunOutcome::Cut { EndedAs::Cut } else { EndedAs::Clean };
        if outcome != RunOutcome::FailedToStart {
            self.failed_starts = 0;
            self.given_up = 0;
            self.release(given, ended, Then::Poll, actions);
            return;
        }
        self.failed_starts += 1;
        if self.stopping || holding.is_lost() {
            self.release(given, ended, Then::Poll, actions);
        } else if self.failed_starts < self.timing.starts_before_giving_up() {
            let pause = self.timing.after_failures(self.failed_starts);
            holding.set_work(Work::Ready { not_before: given.now + pause });
        } else {
            self.failed_starts = 0;
            self.given_up = self.given_up.saturating_add(1);
            actions.push(Action::Tell(Notice::StartGivenUp { rounds: self.given_up }));
            let pause = self.timing.after_given_up(self.given_up, given.jitter);
            self.release(given, ended, Then::BackOff(pause), actions);
        }
    }

    fn stop(&mut self, given: &Given, actions: &mut Vec<Action>) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        match &self.state {
            State::Acquiring(acquiring) => {
                self.state = State::Releasing(Releasing {
                    owner: acquiring.owner,
                    term: None,
                    asked: None,
                    tries: 0,
                    again_at: given.now,
                    pointless_at: self.timing.expires_at(given.now),
                    then: Then::Poll,
                });
            }
            State::Holding(holding) => {
                if let Some(run) = holding.run() {
                    actions.push(Action::Drain { run });
                } else {
                    self.release(given, EndedAs::Clean, Then::Poll, actions);
                }
            }
            State::Standby { .. } | State::Releasing(_) | State::Finished => {}
        }
    }

    fn finish(&mut self, actions: &mut Vec<Action>) {
        self.state = State::Finished;
        actions.push(Action::Finished);
    }
}

impl Acquiring {
    fn unanswered(&mut self, now: BootInstant, timing: &LockTiming, jitter: f64) {
        self.waiting = false;
        self.tries = self.tries.saturating_add(1);
        self.again_at = now + timing.after_unknown(self.tries, jitter);
    }
}

impl Releasing {
    fn unanswered(&mut self, now: BootInstant, timing: &LockTiming) {
        self.asked = None;
        self.tries = self.tries.saturating_add(1);
        self.again_at = now + timing.after_failures(self.tries);
    }
}

/// What a [`Holding`] borrows from its machine.
pub(super) struct Tools<'a> {
    pub(super) timing: &'a LockTiming,
    pub(super) stopping: bool,
    tickets: &'a mut u64,
    runs: &'a mut u64,
}

impl Tools<'_> {
    pub(super) fn ticket(&mut self, now: BootInstant) -> Ticket {
        *self.tickets += 1;
        Ticket { number: *self.tickets, sent: now }
    }

    pub(super) fn run(&mut self) -> RunId {
        *self.runs += 1;
        RunId(*self.runs)
    }
}

/// Whether a loss leaves something to release.
pub(super) fn leaves_nothing(cause: LossCause) -> bool {
    cause == LossCause::Refused
}
