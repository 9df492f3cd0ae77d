//! What the machine does while it holds the lock: renew, raise the fence, start the run, doubt, lose, cut.
//!
//! Split from the machine because it is the half with the deadlines. It answers with an [`Outcome`] and never
//! leaves itself, so that there is one place only, in the machine, where a lock is given back.

use std::time::Duration;

use uuid::Uuid;

use super::machine::{Outcome, Standing, Then, Tools, leaves_nothing};
use super::protocol::{Action, Deadlines, Doubt, EndedAs, Event, Given, LossCause, Notice, RunId, Ticket};
use super::timing::LockTiming;
use crate::clock::BootInstant;

/// How often people are told that the endpoint's row belongs to another lock.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// A lock that was won.
#[derive(Debug)]
pub(super) struct Holding {
    owner: Uuid,
    fence: u64,
    /// The request that won it: answers to requests before this one belong to another acquisition.
    won_by: Ticket,
    /// The instant before the latest confirmed request was sent.
    confirmed: BootInstant,
    /// The latest request before a clock jump that no renewal sent after it has answered yet.
    distrusted_after: Option<u64>,
    phase: Phase,
    renewal: Renewal,
    work: Work,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Held,
    Doubtful,
    Lost { cause: LossCause, cut_at: BootInstant, cut: bool, overrun_told: bool },
}

#[derive(Debug)]
struct Renewal {
    asked: Option<Ticket>,
    failures: u32,
    next_at: BootInstant,
}

/// What the lock is held for just now.
#[derive(Debug)]
pub(super) enum Work {
    /// The fence is not confirmed yet.
    Raising { asked: Option<Ticket>, failures: u32, next_at: BootInstant, told_at: Option<BootInstant> },
    /// The fence is confirmed; the run starts as soon as the lock is.
    Ready { not_before: BootInstant },
    /// The run is on.
    Running { run: RunId },
}

impl Holding {
    pub(super) fn new(owner: Uuid, fence: u64, won_by: Ticket, next_renewal: BootInstant) -> Self {
        Holding {
            owner,
            fence,
            won_by,
            confirmed: won_by.sent,
            distrusted_after: None,
            phase: Phase::Held,
            renewal: Renewal { asked: None, failures: 0, next_at: next_renewal },
            work: Work::Raising { asked: None, failures: 0, next_at: won_by.sent, told_at: None },
        }
    }

    pub(super) fn owner(&self) -> Uuid {
        self.owner
    }

    pub(super) fn fence(&self) -> u64 {
        self.fence
    }

    pub(super) fn confirmed(&self) -> BootInstant {
        self.confirmed
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Lost { .. })
    }

    /// Whether the store itself has said that the lock is not ours.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.phase, Phase::Lost { cause, .. } if leaves_nothing(cause))
    }

    pub(super) fn run(&self) -> Option<RunId> {
        match self.work {
            Work::Running { run } => Some(run),
            Work::Raising { .. } | Work::Ready { .. } => None,
        }
    }

    pub(super) fn set_work(&mut self, work: Work) {
        self.work = work;
    }

    pub(super) fn standing(&self) -> Standing {
        match (self.phase, &self.work) {
            (Phase::Lost { .. }, _) => Standing::Lost,
            (Phase::Held, Work::Running { .. }) => Standing::Held,
            (Phase::Doubtful, Work::Running { .. }) => Standing::Doubtful,
            (Phase::Held | Phase::Doubtful, _) => Standing::Preparing,
        }
    }

    pub(super) fn wakes_at(&self, timing: &LockTiming, stopping: bool) -> Option<BootInstant> {
        let phase = match self.phase {
            Phase::Held => Some(timing.doubtful_at(self.confirmed)),
            Phase::Doubtful => Some(timing.lost_at(self.confirmed)),
            Phase::Lost { cut_at, cut: false, .. } => Some(cut_at),
            Phase::Lost { overrun_told: false, cut_at, .. } => Some(self.overrun_at(timing, cut_at)),
            Phase::Lost { .. } => None,
        };
        if self.is_lost() {
            return phase;
        }
        let renewal = match self.renewal.asked {
            Some(asked) => asked.sent + timing.attempt_timeout(),
            None => self.renewal.next_at,
        };
        let work = match &self.work {
            Work::Raising { asked: Some(asked), .. } => Some(asked.sent + timing.attempt_timeout()),
            Work::Raising { asked: None, next_at, .. } => Some(*next_at),
            Work::Ready { not_before } if self.phase == Phase::Held && !stopping => Some(*not_before),
            Work::Ready { .. } | Work::Running { .. } => None,
        };
        [phase, Some(renewal), work].into_iter().flatten().min()
    }

    /// Wall and boot clock parted: nothing is taken in until a renewal that is sent from now on is confirmed.
    pub(super) fn distrust_clock(&mut self, now: BootInstant, latest: u64, actions: &mut Vec<Action>) {
        if self.is_lost() {
            return;
        }
        self.distrusted_after = Some(latest);
        self.renewal.asked = None;
        self.renewal.next_at = now;
        self.doubt(Doubt::ClockJump, actions);
    }

    pub(super) fn drop_run(&mut self, actions: &mut Vec<Action>) {
        if let Work::Running { run } = self.work {
            actions.push(Action::DropRun { run });
        }
    }

    pub(super) fn pass_time(
        &mut self,
        given: &Given,
        tools: &mut Tools<'_>,
        actions: &mut Vec<Action>,
    ) -> Outcome {
        let now = given.now;
        if !self.is_lost() {
            if now >= tools.timing.lost_at(self.confirmed) {
                self.lose(now, LossCause::Deadline, tools.timing, actions);
            } else if now >= tools.timing.doubtful_at(self.confirmed) {
                self.doubt(Doubt::Unconfirmed, actions);
            }
        }
        if self.is_lost() {
            return self.pass_time_lost(now, tools.timing, actions);
        }
        self.keep_renewing(now, tools, actions);
        if tools.stopping && self.run().is_none() {
            return Outcome::Release(EndedAs::Clean, Then::Poll);
        }
        self.keep_working(given, tools, actions);
        Outcome::Stays
    }

    fn pass_time_lost(
        &mut self,
        now: BootInstant,
        timing: &LockTiming,
        actions: &mut Vec<Action>,
    ) -> Outcome {
        let Work::Running { run } = self.work else {
            // Nothing runs: what is left of the lease is given back, unless the store said it is not ours.
            return if self.is_refused() {
                Outcome::Gone
            } else {
                Outcome::Release(EndedAs::Clean, Then::Poll)
            };
        };
        let confirmed = self.confirmed;
        if let Phase::Lost { cut_at, cut, overrun_told, .. } = &mut self.phase {
            if !*cut && now >= *cut_at {
                *cut = true;
                actions.push(Action::Cut { run });
            }
            if *cut && !*overrun_told && now >= overrun_after(timing, confirmed, *cut_at) {
                *overrun_told = true;
                actions.push(Action::Overrun { run });
            }
        }
        Outcome::Stays
    }

    fn overrun_at(&self, timing: &LockTiming, cut_at: BootInstant) -> BootInstant {
        overrun_after(timing, self.confirmed, cut_at)
    }

    fn keep_renewing(&mut self, now: BootInstant, tools: &mut Tools<'_>, actions: &mut Vec<Action>) {
        if let Some(asked) = self.renewal.asked
            && now >= asked.sent + tools.timing.attempt_timeout()
        {
            self.renewal_failed(now, tools.timing);
        }
        if self.renewal.asked.is_none() && now >= self.renewal.next_at {
            let ticket = tools.ticket(now);
            self.renewal.asked = Some(ticket);
            actions.push(Action::Renew { ticket, owner: self.owner, fence: self.fence });
        }
    }

    fn renewal_failed(&mut self, now: BootInstant, timing: &LockTiming) {
        // After the third try there is no fourth round to wait for: it goes on for as long as the deadline allows.
        self.renewal.asked = None;
        self.renewal.failures = self.renewal.failures.saturating_add(1);
        self.renewal.next_at = now + timing.after_failures(self.renewal.failures);
    }

    fn keep_working(&mut self, given: &Given, tools: &mut Tools<'_>, actions: &mut Vec<Action>) {
        let now = given.now;
        match &mut self.work {
            Work::Raising { asked, failures, next_at, .. } => {
                if let Some(ticket) = *asked
                    && now >= ticket.sent + tools.timing.attempt_timeout()
                {
                    *asked = None;
                    *failures = failures.saturating_add(1);
                    *next_at = now + tools.timing.after_unknown(*failures, given.jitter);
                }
                if asked.is_none() && now >= *next_at {
                    let ticket = tools.ticket(now);
                    *asked = Some(ticket);
                    actions.push(Action::RaiseFence { ticket, fence: self.fence });
                }
            }
            Work::Ready { not_before } => {
                // In doubt nothing is taken in, so nothing is started either.
                if now >= *not_before && self.phase == Phase::Held {
                    let run = tools.run();
                    self.work = Work::Running { run };
                    let deadlines = self.deadlines(now, tools.timing);
                    actions.push(Action::StartRun { run, fence: self.fence, deadlines });
                }
            }
            Work::Running { .. } => {}
        }
    }

    pub(super) fn take(
        &mut self,
        given: &Given,
        event: Event,
        tools: &mut Tools<'_>,
        actions: &mut Vec<Action>,
    ) -> Outcome {
        if self.is_lost() {
            // An answer that comes after the loss revives nothing.
            return Outcome::Stays;
        }
        let now = given.now;
        match event {
            Event::Renewed { ticket } if self.is_ours(ticket) => {
                self.renewed(given, ticket, tools.timing, actions);
            }
            Event::RenewalRefused { ticket } if self.is_ours(ticket) => {
                self.lose(now, LossCause::Refused, tools.timing, actions);
            }
            Event::RenewalUnknown { ticket } if self.renewal.asked == Some(ticket) => {
                self.renewal_failed(now, tools.timing);
            }
            Event::Lapsed { run } if self.run() == Some(run) => {
                self.lose(now, LossCause::Deadline, tools.timing, actions);
            }
            Event::FencedOff { run } if self.run() == Some(run) => {
                self.lose(now, LossCause::FencedOff, tools.timing, actions);
            }
            _ => return self.take_fence(given, event, tools, actions),
        }
        Outcome::Stays
    }

    fn take_fence(
        &mut self,
        given: &Given,
        event: Event,
        tools: &Tools<'_>,
        actions: &mut Vec<Action>,
    ) -> Outcome {
        let now = given.now;
        let fence = self.fence;
        let won_by = self.won_by;
        let Work::Raising { asked, failures, next_at, told_at } = &mut self.work else {
            return Outcome::Stays;
        };
        match event {
            // Also a late one: once raised, the row only leaves us for a higher fence, and that refuses our writes.
            Event::FenceRaised { ticket } if ticket.number > won_by.number => {
                self.work = Work::Ready { not_before: now };
            }
            Event::FenceHeldByOtherLock { ticket, free_in } if *asked == Some(ticket) => {
                *asked = None;
                *failures = 0;
                let pause = tools.timing.until_poll(given.jitter).min(free_in);
                *next_at = now + pause.max(tools.timing.after_failures(1));
                if told_at.is_none_or(|told| now.since(told) >= TELL_EVERY) {
                    *told_at = Some(now);
                    actions.push(Action::Tell(Notice::WaitingForOtherLock { free_in }));
                }
            }
            Event::FenceOutrun { ticket } if *asked == Some(ticket) => {
                actions.push(Action::Tell(Notice::Outrun { fence }));
                return Outcome::Release(EndedAs::Clean, Then::Poll);
            }
            Event::FenceUnknown { ticket } if *asked == Some(ticket) => {
                *asked = None;
                *failures = failures.saturating_add(1);
                *next_at = now + tools.timing.after_unknown(*failures, given.jitter);
            }
            _ => {}
        }
        Outcome::Stays
    }

    fn is_ours(&self, ticket: Ticket) -> bool {
        ticket.number > self.won_by.number
    }

    fn renewed(&mut self, given: &Given, ticket: Ticket, timing: &LockTiming, actions: &mut Vec<Action>) {
        if self.renewal.asked.is_some_and(|asked| asked.number <= ticket.number) {
            self.renewal.asked = None;
        }
        if ticket.sent >= self.confirmed {
            self.confirmed = ticket.sent;
            self.renewal.failures = 0;
            self.renewal.next_at = ticket.sent + timing.until_renewal(given.jitter);
        }
        if let Some(latest) = self.distrusted_after {
            if ticket.number > latest {
                self.distrusted_after = None;
            } else {
                // It was sent before the clocks parted: it counts, but it does not end the doubt.
                self.renewal.next_at = self.renewal.next_at.min(given.now);
            }
        }
        let confirmed_now = given.now < timing.doubtful_at(self.confirmed);
        if self.distrusted_after.is_none() && confirmed_now {
            self.phase = Phase::Held;
        }
        if let Some(run) = self.run() {
            actions.push(Action::Extend { run, deadlines: self.deadlines(given.now, timing) });
        }
    }

    fn deadlines(&self, now: BootInstant, timing: &LockTiming) -> Deadlines {
        let owned_until = timing.lost_at(self.confirmed);
        let intake_until =
            if self.phase == Phase::Held { timing.doubtful_at(self.confirmed) } else { now.min(owned_until) };
        Deadlines { intake_until, owned_until }
    }

    fn doubt(&mut self, doubt: Doubt, actions: &mut Vec<Action>) {
        if self.phase == Phase::Held {
            self.phase = Phase::Doubtful;
            if let Some(run) = self.run() {
                actions.push(Action::Doubt { run, doubt });
            }
        }
    }

    fn lose(&mut self, now: BootInstant, cause: LossCause, timing: &LockTiming, actions: &mut Vec<Action>) {
        // After a definite answer another may already be starting, so the notice runs from here, and never past
        // what the deadline would have given.
        let cut_at = (now + timing.notice()).min(timing.cut_at(self.confirmed));
        self.phase = Phase::Lost { cause, cut_at, cut: false, overrun_told: false };
        match self.run() {
            Some(run) => actions.push(Action::Lose { run, cause }),
            None => actions.push(Action::Tell(Notice::LostBeforeStart { cause })),
        }
    }
}

/// When a run that was cut should have ended: before the lease does, if that is still ahead.
fn overrun_after(timing: &LockTiming, confirmed: BootInstant, cut_at: BootInstant) -> BootInstant {
    (cut_at + timing.lock_lease() / 16).min(timing.overrun_at(confirmed)).max(cut_at)
}
