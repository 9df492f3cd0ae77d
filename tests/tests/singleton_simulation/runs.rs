//! What a run does: claim, handle, check, settle; and how it comes to its end.

use bus::clock::BootInstant;
use bus::singleton::protocol::{Event, RunId, RunOutcome, Ticket};

use super::host::RunStep;
use super::judge::Count;
use super::plan::{LEASE, MILLI, Mutation};
use super::world::{Happens, Request, World};

impl World {
    pub(crate) fn run_step(&mut self, host: usize, id: RunId, step: RunStep) {
        let now = BootInstant::from_nanos(self.hosts[host].clock(self.at));
        let Some(run) = self.hosts[host].run_mut(id) else { return };
        match step {
            RunStep::FailStart => self.run_ends(host, id, RunOutcome::FailedToStart),
            RunStep::End { clean } => {
                self.run_ends(host, id, if clean { RunOutcome::Clean } else { RunOutcome::Cut });
            }
            _ if run.ending => {}
            RunStep::Claim => {
                if run.draining {
                    self.run_ends(host, id, RunOutcome::Clean);
                } else if now < run.deadlines.intake_until && !run.lost {
                    self.write(host, id, false);
                } else {
                    self.later(20 * MILLI, host, Happens::Run { run: id, step: RunStep::Claim });
                }
            }
            RunStep::Answered { write, accepted } => {
                let Some((expected, settles)) = run.writing else { return };
                if expected != write {
                    return;
                }
                run.writing = None;
                match (accepted, settles) {
                    (false, _) => {
                        // Another fence is in force: this term is over, whatever the lock's store still says.
                        self.step(host, Event::FencedOff { run: id });
                    }
                    (true, true) => self.later(MILLI, host, Happens::Run { run: id, step: RunStep::Claim }),
                    (true, false) => self.handler_begins(host, id),
                }
            }
            RunStep::GivenUp { write } => {
                let Some((expected, settles)) = run.writing else { return };
                if expected == write {
                    run.writing = None;
                    let step = if settles { RunStep::HandlerDone } else { RunStep::Claim };
                    self.later(0, host, Happens::Run { run: id, step });
                }
            }
            RunStep::HandlerDone => {
                run.in_handler = false;
                if self.check(host, id) {
                    let gap = self.chance.between(0, 2 * MILLI);
                    self.later(gap, host, Happens::Run { run: id, step: RunStep::SettleSend });
                    if self.chance.happens(self.plan.pause_mid_settle) && self.freeze(host) > LEASE {
                        self.judge.counts.add(Count::PausedMidSettleBeyondLease);
                    }
                }
            }
            RunStep::SettleSend => self.write(host, id, true),
        }
    }

    fn handler_begins(&mut self, host: usize, id: RunId) {
        if let Some(run) = self.hosts[host].run_mut(id) {
            run.in_handler = true;
        }
        let slow = self.chance.happens(self.plan.slow_handler);
        let longest = if slow { 2 * LEASE } else { LEASE / 10 };
        let duration = self.chance.between(0, longest);
        self.later(duration, host, Happens::Run { run: id, step: RunStep::HandlerDone });
        if self.chance.happens(self.plan.pause_mid_handler) && self.freeze(host) > LEASE {
            self.judge.counts.add(Count::PausedMidHandlerBeyondLease);
        }
    }

    fn write(&mut self, host: usize, id: RunId, settles: bool) {
        let Some(run) = self.hosts[host].run_mut(id) else { return };
        run.writes += 1;
        run.writing = Some((run.writes, settles));
        let (fence, write) = (run.fence, run.writes);
        let ticket = Ticket { number: u64::MAX, sent: BootInstant::from_nanos(0) };
        self.send(host, ticket, Request::Write { run: id, fence, write, settles });
        self.later(LEASE / 10, host, Happens::Run { run: id, step: RunStep::GivenUp { write } });
    }

    /// What `term.check()` does: it reads the clock, and a term that is once over stays over.
    fn check(&mut self, host: usize, id: RunId) -> bool {
        let now = BootInstant::from_nanos(self.hosts[host].clock(self.at));
        let by_flag = self.plan.mutation == Some(Mutation::FlagInsteadOfDeadline);
        let Some(run) = self.hosts[host].run_mut(id) else { return false };
        let owned = !run.lost && (by_flag || now < run.deadlines.owned_until);
        let fence = run.fence;
        if owned {
            self.judge.check_passed(self.at, host, fence);
            return true;
        }
        self.judge.counts.add(Count::StaleCheckRefused);
        let told = std::mem::replace(&mut run.lost, true);
        if !told {
            self.step(host, Event::Lapsed { run: id });
        }
        self.ends_soon(host, id, false);
        false
    }

    pub(crate) fn lose_run(&mut self, host: usize, id: RunId) {
        let mutation = self.plan.mutation;
        if mutation == Some(Mutation::LostIsIgnored) {
            return;
        }
        let Some(run) = self.hosts[host].run_mut(id) else { return };
        run.lost = true;
        if mutation == Some(Mutation::CandidateBeforeJoin) {
            run.already_reported = true;
            self.later(
                0,
                host,
                Happens::Answer { event: Event::RunEnded { run: id, outcome: RunOutcome::Cut } },
            );
            return;
        }
        // Some handlers listen to their token, some are in the middle of something that does not.
        if self.chance.happens(500) {
            self.ends_soon(host, id, false);
        }
    }

    pub(crate) fn cut_run(&mut self, host: usize, id: RunId) {
        if self.plan.mutation == Some(Mutation::LostIsIgnored) {
            return;
        }
        let stuck = self.chance.happens(self.plan.stuck_run);
        let after =
            if stuck { self.chance.between(LEASE / 4, 3 * LEASE) } else { self.chance.between(0, 5 * MILLI) };
        let Some(run) = self.hosts[host].run_mut(id) else { return };
        run.lost = true;
        if run.stuck {
            return;
        }
        if stuck {
            run.stuck = true;
            self.judge.counts.add(Count::RunStuck);
        } else {
            run.ending = true;
        }
        self.later(after, host, Happens::Run { run: id, step: RunStep::End { clean: false } });
    }

    pub(crate) fn drain_run(&mut self, host: usize, id: RunId) {
        let Some(run) = self.hosts[host].run_mut(id) else { return };
        run.draining = true;
        if self.plan.mutation == Some(Mutation::ReleaseBeforeRunEnds) {
            run.already_reported = true;
            self.later(
                0,
                host,
                Happens::Answer { event: Event::RunEnded { run: id, outcome: RunOutcome::Clean } },
            );
        }
    }

    fn ends_soon(&mut self, host: usize, id: RunId, clean: bool) {
        let after = self.chance.between(0, 30 * MILLI);
        let Some(run) = self.hosts[host].run_mut(id) else { return };
        if !run.ending && !run.stuck {
            run.ending = true;
            self.later(after, host, Happens::Run { run: id, step: RunStep::End { clean } });
        }
    }

    fn run_ends(&mut self, host: usize, id: RunId, outcome: RunOutcome) {
        let runs = &mut self.hosts[host].runs;
        let Some(index) = runs.iter().position(|run| run.id == id) else { return };
        let run = runs.swap_remove(index);
        if !run.already_reported {
            self.step(host, Event::RunEnded { run: id, outcome });
        }
    }
}
