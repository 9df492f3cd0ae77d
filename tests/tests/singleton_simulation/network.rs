//! The way of a request to a store and of its answer back, with everything that can happen to either.

use std::time::Duration;

use bus::singleton::protocol::{Event, RunId, Ticket};

use super::host::RunStep;
use super::judge::Count;
use super::plan::{LEASE, MILLI, Mutation};
use super::stores::RaiseAnswer;
use super::world::{Happens, Request, World};

impl World {
    pub(crate) fn send(&mut self, host: usize, ticket: Ticket, request: Request) {
        if !matches!(request, Request::Write { .. }) {
            self.hosts[host].note_sent(ticket, self.at);
        }
        let copies = self.copies(host, self.plan.lost_request, Count::RequestLost);
        for _ in 0..copies {
            let delay = self.delay();
            self.later(delay, host, Happens::Arrives { ticket, request });
        }
    }

    /// How many copies of a message arrive.
    fn copies(&mut self, host: usize, lost: u64, count: Count) -> usize {
        if self.at < self.hosts[host].partitioned_until || self.chance.happens(lost) {
            self.judge.counts.add(count);
            return 0;
        }
        if self.chance.happens(self.plan.duplicated) {
            self.judge.counts.add(Count::Duplicated);
            return 2;
        }
        1
    }

    fn delay(&mut self) -> u64 {
        if self.chance.happens(self.plan.late) {
            self.judge.counts.add(Count::Late);
            return self.chance.between(LEASE / 10, LEASE * 3 / 2);
        }
        self.chance.between(0, self.plan.delay)
    }

    pub(crate) fn arrives(&mut self, host: usize, ticket: Ticket, request: Request) {
        let unknown = unknown(ticket, request);
        if self.at < self.store_down_until {
            if self.chance.happens(500) {
                self.judge.counts.add(Count::StoreError);
                self.reply(host, unknown, false);
            }
            return;
        }
        // An error may be told before or after the work was done.
        let fails = self.chance.happens(self.plan.errors);
        if fails && self.chance.happens(500) {
            self.judge.counts.add(Count::StoreError);
            self.reply(host, unknown, false);
            return;
        }
        let (now, mutation) = (self.store_now(), self.plan.mutation);
        let answer = match request {
            Request::TryLock { owner } => match self.locks.try_lock(now, owner) {
                Some(fence) => {
                    self.judge.granted(self.at, owner, fence);
                    Some(Event::Acquired { ticket, fence })
                }
                None => Some(Event::HeldElsewhere { ticket }),
            },
            Request::Renew { owner, fence } => {
                let held = self.locks.renew(now, owner, fence, mutation);
                Some(if held { Event::Renewed { ticket } } else { Event::RenewalRefused { ticket } })
            }
            Request::Release { owner, fence, clean } => {
                self.locks.release(owner, fence, clean, mutation);
                self.hint_others(host, clean);
                Some(Event::Released { ticket })
            }
            Request::Raise { fence } => Some(match self.messages.raise(self.at, fence) {
                RaiseAnswer::Raised => {
                    self.judge.raised(fence);
                    Event::FenceRaised { ticket }
                }
                RaiseAnswer::Outdated => Event::FenceOutrun { ticket },
                RaiseAnswer::OtherLock { free_in } => {
                    Event::FenceHeldByOtherLock { ticket, free_in: Duration::from_nanos(free_in) }
                }
            }),
            Request::Write { run, fence, write, settles } => {
                self.write_arrives(host, run, fence, write, settles);
                None
            }
        };
        if fails && !matches!(request, Request::Write { .. }) {
            self.judge.counts.add(Count::StoreError);
            self.reply(host, unknown, false);
        } else {
            self.reply(host, answer, matches!(request, Request::TryLock { .. }));
        }
    }

    fn write_arrives(&mut self, host: usize, run: RunId, fence: u64, write: u64, settles: bool) {
        if !self.messages.accepts(fence) {
            self.judge.counts.add(Count::StaleWriteRefused);
            self.write_answered(host, run, write, settles, false);
        } else if self.plan.mutation == Some(Mutation::FenceRowNotLocked) {
            let gap = self.chance.between(0, 30 * MILLI);
            self.later_to_sender(gap, host, Happens::Lands { run, fence, write, settles });
        } else {
            self.judge.accepted(self.at, host, fence);
            self.write_answered(host, run, write, settles, true);
        }
    }

    pub(crate) fn write_answered(
        &mut self,
        host: usize,
        run: RunId,
        write: u64,
        settles: bool,
        accepted: bool,
    ) {
        if accepted && settles {
            let healed = self.is_healed();
            self.judge.settled(healed);
        }
        for _ in 0..self.copies(host, self.plan.lost_answer, Count::AnswerLost) {
            let delay = self.delay();
            self.later_to_sender(
                delay,
                host,
                Happens::Run { run, step: RunStep::Answered { write, accepted } },
            );
        }
    }

    fn reply(&mut self, host: usize, event: Option<Event>, of_acquire: bool) {
        let Some(event) = event else { return };
        let copies = self.copies(host, self.plan.lost_answer, Count::AnswerLost);
        if copies == 0 && of_acquire && matches!(event, Event::Acquired { .. }) {
            self.judge.counts.add(Count::AcquireAnswerLost);
        }
        for _ in 0..copies {
            let delay = self.delay();
            self.later_to_sender(delay, host, Happens::Answer { event });
        }
    }

    fn hint_others(&mut self, host: usize, clean: bool) {
        if !clean || !self.plan.hints {
            return;
        }
        for other in 0..self.hosts.len() {
            if other != host {
                let delay = self.delay();
                self.later(delay, other, Happens::Answer { event: Event::Freed });
            }
        }
    }
}

/// What an error says about a request: nothing.
fn unknown(ticket: Ticket, request: Request) -> Option<Event> {
    match request {
        Request::TryLock { .. } => Some(Event::AcquireUnknown { ticket }),
        Request::Renew { .. } => Some(Event::RenewalUnknown { ticket }),
        Request::Release { .. } => Some(Event::ReleaseUnknown { ticket }),
        Request::Raise { .. } => Some(Event::FenceUnknown { ticket }),
        Request::Write { .. } => None,
    }
}
