//! The vocabulary of the singleton protocol: what can happen to a candidate, and what it can ask for.
//!
//! The machine in [`super::machine`] is pure: `step(given, event) -> actions`. The same code runs in the host,
//! driven by the keeper, and in the simulation, driven by a simulated store and simulated clocks. That only stays
//! true while nothing in these two files reads a clock, draws a random number or does I/O: what the outside world
//! knows comes in through [`Given`] and [`Event`], and everything that has to happen goes out as an [`Action`].
//!
//! Whoever drives the machine has three duties. Answers are passed on with the [`Ticket`] of the request they
//! belong to, whatever else happened meanwhile. Actions are carried out in their order, and none of them is
//! waited for before the next step. And [`Event::RunEnded`] is told only when nothing of that run executes any
//! more: the machine cannot see that for itself, and everything rests on it.

use std::time::Duration;

use uuid::Uuid;

use crate::clock::BootInstant;

/// What the outside world gives to each step.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// The boot clock, read just before the step. It never goes back and goes on during a suspend.
    pub now: BootInstant,
    /// The wall clock in nanoseconds since 1970, read together with `now`. It decides nothing by itself; that the
    /// two clocks part is the sign that one of them cannot be trusted.
    pub wall: u64,
    /// A fresh random UUID: the owner of the next acquisition, should this step begin one.
    pub owner: Uuid,
    /// A random number between −1 and 1, from which this step's pauses take their jitter.
    pub jitter: f64,
}

/// Names one request, and remembers the instant before it was sent: a confirmation counts from there, never from
/// when its answer was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// Grows with each request of one machine.
    pub number: u64,
    /// The boot clock of the step that asked.
    pub sent: BootInstant,
}

/// Names one run: each start has a new number, also when an earlier start of the same term failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u64);

/// Until when a run may do what. Readable by any thread, decided by clock, never by a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Nothing new is taken in from here on (half of the lease after the confirmed request; at once, if doubted).
    pub intake_until: BootInstant,
    /// Nothing is owned from here on (three quarters).
    pub owned_until: BootInstant,
}

/// How a run ended, told once it has really ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// Everything it had taken in was settled and confirmed: a successor may start at once.
    Clean,
    /// It was cut short, but nothing of it executes any more. Its successor waits for the lease.
    Cut,
    /// It never took anything in.
    FailedToStart,
}

/// What is recorded with a released lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedAs {
    /// The next holder may start at once.
    Clean,
    /// The next holder waits until the lease would have expired.
    Cut,
}

/// Why a term is over before its run wanted it to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// No renewal was confirmed in time.
    Deadline,
    /// The store said that the lock is not held under this owner and fence.
    Refused,
    /// The message store refused a write, because another fence stands in its row.
    FencedOff,
}

/// Why a holder stops taking in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Half of the lease went by without a confirmation.
    Unconfirmed,
    /// Wall and boot clock parted by more than a twentieth of the lease.
    ClockJump,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time went by.
    Tick,
    /// The store hints that the lock may have been freed. A hint only: nothing is concluded from it.
    Freed,

    /// The lock is held under the owner that was asked for.
    Acquired {
        /// The request.
        ticket: Ticket,
        /// The fence of this acquisition.
        fence: u64,
    },
    /// Somebody else holds it, or a record still has to run out.
    HeldElsewhere {
        /// The request.
        ticket: Ticket,
    },
    /// An error: it may be held under that owner now, or not.
    AcquireUnknown {
        /// The request.
        ticket: Ticket,
    },

    /// The store confirmed the renewal.
    Renewed {
        /// The request.
        ticket: Ticket,
    },
    /// A definite answer: the lock is not held under this owner and fence.
    RenewalRefused {
        /// The request.
        ticket: Ticket,
    },
    /// An error, which says nothing about the lock.
    RenewalUnknown {
        /// The request.
        ticket: Ticket,
    },

    /// The row in the message store carries our fence.
    FenceRaised {
        /// The request.
        ticket: Ticket,
    },
    /// The row belongs to another lock, which may still be used.
    FenceHeldByOtherLock {
        /// The request.
        ticket: Ticket,
        /// How long until the row may be taken, by the store's clock.
        free_in: Duration,
    },
    /// The row carries a higher fence: somebody acquired the lock after us.
    FenceOutrun {
        /// The request.
        ticket: Ticket,
    },
    /// An error, which says nothing about the row.
    FenceUnknown {
        /// The request.
        ticket: Ticket,
    },

    /// The lock is not held under this owner any more, whoever may hold it now.
    Released {
        /// The request.
        ticket: Ticket,
    },
    /// An error, which says nothing about the lock.
    ReleaseUnknown {
        /// The request.
        ticket: Ticket,
    },

    /// Nothing of that run executes any more.
    RunEnded {
        /// Which run.
        run: RunId,
        /// How it ended.
        outcome: RunOutcome,
    },
    /// The run itself read on the clock that its term is over, before the machine was asked.
    Lapsed {
        /// Which run.
        run: RunId,
    },
    /// The message store refused a write of that run for its fence.
    FencedOff {
        /// Which run.
        run: RunId,
    },

    /// The host shuts down: take in no more, drain, release.
    Stop,
    /// The last act of the process: the run is dropped, and released if that ended it.
    LastAct,
    /// The process ends now, with whatever is still running: the lease is left to expire.
    Abandon,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask for the lock. The same owner is asked for again until the answer is definite.
    Acquire {
        /// To be passed back with the answer.
        ticket: Ticket,
        /// Who asks.
        owner: Uuid,
    },
    /// Renew it, on condition of owner and fence.
    Renew {
        /// To be passed back with the answer.
        ticket: Ticket,
        /// Who holds it.
        owner: Uuid,
        /// Under which fence.
        fence: u64,
    },
    /// Raise the row of the endpoint in the message store to this fence.
    RaiseFence {
        /// To be passed back with the answer.
        ticket: Ticket,
        /// The fence of this acquisition.
        fence: u64,
    },
    /// Release it, on condition of owner and fence.
    Release {
        /// To be passed back with the answer.
        ticket: Ticket,
        /// Who held it.
        owner: Uuid,
        /// Under which fence.
        fence: u64,
        /// What is recorded.
        ended: EndedAs,
    },
    /// Release whatever an acquire of unknown outcome may have taken, on condition of the owner.
    Withdraw {
        /// To be passed back with the answer.
        ticket: Ticket,
        /// Who asked.
        owner: Uuid,
    },

    /// Lock and fence are confirmed: the run may start.
    StartRun {
        /// The name of the run.
        run: RunId,
        /// The fence it writes under.
        fence: u64,
        /// Until when.
        deadlines: Deadlines,
    },
    /// The deadlines moved.
    Extend {
        /// Whose.
        run: RunId,
        /// Until when.
        deadlines: Deadlines,
    },
    /// Take nothing in until the next [`Action::Extend`]; all else still passes.
    Doubt {
        /// Who.
        run: RunId,
        /// Why.
        doubt: Doubt,
    },
    /// The term is over: the token is cancelled, nothing passes any more.
    Lose {
        /// Who.
        run: RunId,
        /// Why.
        cause: LossCause,
    },
    /// The handlers' futures are dropped.
    Cut {
        /// Who.
        run: RunId,
    },
    /// The run was cut and still has not ended, and the lease is about to end.
    Overrun {
        /// Who.
        run: RunId,
    },
    /// Take in no more, finish what is in flight, and hand over. The lock is kept meanwhile.
    Drain {
        /// Who.
        run: RunId,
    },
    /// The future of the whole run is dropped.
    DropRun {
        /// Who.
        run: RunId,
    },

    /// Something that people want to know and nobody has to act upon.
    Tell(Notice),
    /// The machine will never ask for anything again.
    Finished,
}

/// What the machine tells to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The lock was won.
    Won {
        /// Under which fence.
        fence: u64,
    },
    /// The endpoint's row belongs to another lock; told at first and each minute.
    WaitingForOtherLock {
        /// How long yet, as far as is known.
        free_in: Duration,
    },
    /// The endpoint's row carries a higher fence than the lock gave us.
    Outrun {
        /// The fence that was too low.
        fence: u64,
    },
    /// The lock went before a run had started.
    LostBeforeStart {
        /// Why.
        cause: LossCause,
    },
    /// Starts kept failing, and the lock is given up to others.
    StartGivenUp {
        /// How many times in a row that has happened.
        rounds: u32,
    },
    /// The lock was released.
    Released {
        /// Under which fence it was held.
        fence: u64,
        /// What was recorded.
        ended: EndedAs,
    },
    /// The lock could not be released, or its run did not end: the next holder waits for the lease.
    LeftToExpire,
}
