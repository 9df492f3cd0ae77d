//! True time, the network, and everything that goes wrong.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use bus::singleton::LockTiming;
use bus::singleton::machine::{Machine, Standing};
use bus::singleton::protocol::{Action, Event, RunId, Ticket};
use uuid::Uuid;

use super::chance::Chance;
use super::host::{Host, Run, RunStep};
use super::judge::{Broken, Count, Judge, THAW_GRACE};
use super::plan::{LEASE, MILLI, Mutation, Plan};
use super::stores::{LockStore, MessageStore};

/// A request on its way to a store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    TryLock { owner: Uuid },
    Renew { owner: Uuid, fence: u64 },
    Release { owner: Uuid, fence: Option<u64>, clean: bool },
    Raise { fence: u64 },
    Write { run: RunId, fence: u64, write: u64, settles: bool },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Happens {
    Tick {
        generation: u64,
    },
    Arrives {
        ticket: Ticket,
        request: Request,
    },
    /// Second half of a write whose fence was looked at before.
    Lands {
        run: RunId,
        fence: u64,
        write: u64,
        settles: bool,
    },
    Answer {
        event: Event,
    },
    Run {
        run: RunId,
        step: RunStep,
    },
    Start,
    Stop,
    LastAct,
    Abandon,
    Freeze,
    Partition,
    WallJump,
    StoreDown,
    RollBackLocks,
    RollBackMessages,
    StoreClockJump,
    Snapshot,
    Heal,
    Bound,
    End,
}

pub(crate) struct World {
    pub(crate) at: u64,
    pub(crate) plan: Plan,
    pub(crate) chance: Chance,
    pub(crate) judge: Judge,
    pub(crate) hosts: Vec<Host>,
    pub(crate) locks: LockStore,
    pub(crate) messages: MessageStore,
    pub(crate) store_offset: i64,
    pub(crate) store_down_until: u64,
    pub(crate) snapshots: Vec<(LockStore, MessageStore)>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: Vec<Option<(usize, u64, Happens)>>,
    /// The process to which what happens just now belongs: the host may have been restarted since.
    sender: u64,
    healed: bool,
    bound_passed: bool,
    pub(crate) trace: Option<Vec<String>>,
}

/// The store's clock at true time zero: late enough for fences made of microseconds to look real.
const STORE_EPOCH: u64 = 1_700_000_000_000_000_000;

impl World {
    pub(crate) fn new(seed: u64, plan: Option<Plan>) -> Self {
        let mut chance = Chance::new(seed);
        let plan = plan.unwrap_or_else(|| Plan::of_seed(&mut chance));
        let mut world = World {
            at: 0,
            judge: Judge::default(),
            hosts: Vec::new(),
            locks: LockStore::default(),
            messages: MessageStore { fence: 0, other_until: plan.other_lock },
            store_offset: 0,
            store_down_until: 0,
            snapshots: Vec::new(),
            queue: BinaryHeap::new(),
            happenings: Vec::new(),
            sender: 0,
            healed: false,
            bound_passed: false,
            trace: None,
            plan,
            chance,
        };
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        for host in 0..self.plan.hosts {
            let skew = self.chance.between(0, 2 * self.plan.skew_ppm) as i64 - self.plan.skew_ppm as i64;
            if skew != 0 {
                self.judge.counts.add(Count::ClockSkewed);
            }
            let entropy = Chance::new(self.chance.next());
            let base = self.chance.between(LEASE, 1_000 * LEASE);
            self.hosts.push(Host::new(Machine::new(timing()), entropy, base, skew));
            self.hosts[host].alive = false;
            let start = self.chance.between(0, LEASE / 4);
            self.later(start, host, Happens::Start);
        }
        let end = self.plan.heals_at;
        let plan = self.plan.clone();
        for (how_many, what) in [
            (plan.pauses, Happens::Freeze),
            (plan.partitions, Happens::Partition),
            (plan.wall_jumps, Happens::WallJump),
            (plan.store_restarts, Happens::StoreDown),
            (plan.lock_rollbacks, Happens::RollBackLocks),
            (plan.message_rollbacks, Happens::RollBackMessages),
            (plan.store_clock_jumps, Happens::StoreClockJump),
            (plan.stops, Happens::Stop),
        ] {
            for _ in 0..how_many {
                let (at, host) = (self.chance.between(0, end), self.any_host());
                self.later(at, host, what);
            }
        }
        if plan.lock_rollbacks + plan.message_rollbacks > 0 {
            for at in (0..end).step_by(LEASE as usize / 2) {
                self.later(at, 0, Happens::Snapshot);
            }
        }
        self.later(end, 0, Happens::Heal);
        self.later(end + plan.bound(), 0, Happens::Bound);
        self.later(plan.ends_at(), 0, Happens::End);
    }

    pub(crate) fn any_host(&mut self) -> usize {
        self.chance.between(0, self.hosts.len() as u64 - 1) as usize
    }

    /// Something happens `after` from now, to the present process of that host.
    pub(crate) fn later(&mut self, after: u64, host: usize, what: Happens) {
        let incarnation = self.hosts.get(host).map_or(0, |host| host.incarnation);
        self.later_to(after, host, incarnation, what);
    }

    /// Something happens to the process that sent what is being answered, if it still lives then.
    pub(crate) fn later_to_sender(&mut self, after: u64, host: usize, what: Happens) {
        self.later_to(after, host, self.sender, what);
    }

    fn later_to(&mut self, after: u64, host: usize, incarnation: u64, what: Happens) {
        self.happenings.push(Some((host, incarnation, what)));
        self.queue.push(Reverse((self.at + after, self.happenings.len() as u64 - 1)));
    }

    pub(crate) fn tell(&mut self, line: impl FnOnce() -> String) {
        let at = self.at as f64 / LEASE as f64;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{at:9.4} {}", line()));
        }
    }

    /// Plays everything, or up to the first broken promise.
    pub(crate) fn play(&mut self) {
        while let Some(Reverse((at, index))) = self.queue.pop() {
            self.at = at;
            let Some((host, incarnation, what)) = self.happenings[index as usize].take() else { continue };
            if matches!(what, Happens::End) {
                break;
            }
            if self.reaches(host, incarnation, what) {
                self.sender = incarnation;
                self.happen(host, what);
                self.watch_overlaps();
            }
            if self.judge.verdict.is_some() {
                break;
            }
        }
    }

    /// Whether it happens now: not to a process that has ended, and later to one that is frozen.
    fn reaches(&mut self, host: usize, incarnation: u64, what: Happens) -> bool {
        let inside = matches!(
            what,
            Happens::Tick { .. }
                | Happens::Answer { .. }
                | Happens::Run { .. }
                | Happens::Stop
                | Happens::LastAct
                | Happens::Abandon
        );
        if !inside {
            return true;
        }
        if !self.hosts[host].alive
            || (self.hosts[host].incarnation != incarnation && !matches!(what, Happens::Stop))
        {
            return false;
        }
        if self.hosts[host].is_frozen(self.at) {
            // After a thaw everything is due at once, in whatever order the scheduler likes.
            let shuffle = self.chance.between(0, 5 * MILLI);
            let thaw = self.hosts[host].frozen_until - self.at;
            self.later(thaw + shuffle, host, what);
            return false;
        }
        true
    }

    fn happen(&mut self, host: usize, what: Happens) {
        match what {
            Happens::Tick { generation } => {
                if self.hosts[host].tick_generation == generation {
                    self.hosts[host].next_tick = u64::MAX;
                    let hint = self.plan.hints && self.chance.happens(5);
                    self.step(host, if hint { Event::Freed } else { Event::Tick });
                }
            }
            Happens::Arrives { ticket, request } => self.arrives(host, ticket, request),
            Happens::Lands { run, fence, write, settles } => {
                self.judge.accepted(self.at, host, fence);
                self.write_answered(host, run, write, settles, true);
            }
            Happens::Answer { event } => self.answered(host, event),
            Happens::Run { run, step } => self.run_step(host, run, step),
            Happens::Start => self.start_process(host),
            Happens::Stop => {
                if !self.hosts[host].alive {
                    return;
                }
                self.tell(|| format!("host {host}: SIGTERM"));
                let grace = self.chance.between(LEASE / 10, LEASE * 3 / 2);
                self.later(grace, host, Happens::LastAct);
                self.later(grace + LEASE / 2, host, Happens::Abandon);
                self.step(host, Event::Stop);
            }
            Happens::LastAct => {
                self.judge.counts.add(Count::LastAct);
                self.step(host, Event::LastAct);
            }
            Happens::Abandon => {
                self.judge.counts.add(Count::Abandoned);
                self.step(host, Event::Abandon);
            }
            Happens::Heal => self.heal(),
            Happens::Bound => {
                self.bound_passed = true;
                let running = self.hosts.iter().map(|host| host.runs.len()).sum();
                self.judge.bound_reached(self.at, running);
            }
            Happens::End => {}
            _ if self.healed => {}
            Happens::Freeze => {
                self.freeze(host);
            }
            Happens::Partition => {
                self.judge.counts.add(Count::Partitioned);
                let until = self.at + self.chance.between(LEASE / 20, 2 * LEASE);
                self.hosts[host].partitioned_until = until.min(self.plan.heals_at);
                self.tell(|| format!("host {host}: partitioned"));
            }
            Happens::WallJump => {
                if self.hosts[host].machine.standing() == Standing::Held {
                    self.judge.counts.add(Count::WallJumpedWhileHeld);
                }
                let by = self.chance.between(LEASE / 10, 3_600 * LEASE);
                let host_clock = &mut self.hosts[host].wall_offset;
                *host_clock =
                    if by.is_multiple_of(2) { *host_clock + by } else { host_clock.saturating_sub(by) };
                self.tell(|| format!("host {host}: wall clock jumps"));
            }
            Happens::StoreDown => {
                self.judge.counts.add(Count::StoreRestarted);
                let until = self.at + self.chance.between(LEASE / 20, 2 * LEASE);
                self.store_down_until = until.min(self.plan.heals_at);
                self.tell(|| "the stores go down".to_owned());
            }
            Happens::Snapshot => self.snapshots.push((self.locks.clone(), self.messages.clone())),
            Happens::RollBackLocks => {
                if let Some((locks, _)) = self.any_snapshot() {
                    self.judge.counts.add(Count::LockStoreRolledBack);
                    self.locks = locks;
                    self.judge.lock_store_untrusted(self.at);
                    self.tell(|| "the lock store is restored from a backup".to_owned());
                }
            }
            Happens::RollBackMessages => {
                if let Some((_, messages)) = self.any_snapshot() {
                    self.judge.counts.add(Count::MessageStoreRolledBack);
                    self.judge.message_store_restored(messages.fence, self.at);
                    self.messages = messages;
                    self.tell(|| "the message store is restored from a backup".to_owned());
                }
            }
            Happens::StoreClockJump => {
                self.judge.counts.add(Count::StoreClockJumped);
                let by = self.chance.between(LEASE / 20, LEASE) as i64;
                self.store_offset += if self.chance.happens(500) { by } else { -by };
                self.judge.lock_store_untrusted(self.at);
                self.tell(|| "the store's clock jumps".to_owned());
            }
        }
    }

    fn any_snapshot(&mut self) -> Option<(LockStore, MessageStore)> {
        let last = (self.snapshots.len() as u64).checked_sub(1)?;
        let index = self.chance.between(last.saturating_sub(6), last) as usize;
        self.snapshots.get(index).cloned()
    }

    pub(crate) fn store_now(&self) -> u64 {
        (STORE_EPOCH + self.at).saturating_add_signed(self.store_offset)
    }

    fn start_process(&mut self, host: usize) {
        if self.hosts[host].alive {
            return;
        }
        self.hosts[host].restart(Machine::new(timing()));
        self.tell(|| format!("host {host}: starts"));
        self.step(host, Event::Tick);
    }

    pub(crate) fn end_process(&mut self, host: usize) {
        let slot = &mut self.hosts[host];
        slot.alive = false;
        slot.runs.clear();
        let pause = if self.healed { LEASE / 10 } else { self.chance.between(LEASE / 20, 2 * LEASE) };
        self.later(pause, host, Happens::Start);
    }

    /// Freezes a process: nothing in it goes on, while what it has sent does.
    pub(crate) fn freeze(&mut self, host: usize) -> u64 {
        if self.healed || !self.hosts[host].alive || self.hosts[host].is_frozen(self.at) {
            return 0;
        }
        let longest = if self.chance.happens(500) { LEASE / 2 } else { 3 * LEASE };
        let until = (self.at + self.chance.between(LEASE / 50, longest)).min(self.plan.heals_at);
        self.judge.counts.add(Count::Paused);
        self.hosts[host].frozen_until = until;
        self.hosts[host].thawed_at = Some(until);
        let length = until - self.at;
        self.tell(|| format!("host {host}: frozen for {:.3} leases", length as f64 / LEASE as f64));
        length
    }

    fn heal(&mut self) {
        self.healed = true;
        let mutation = self.plan.mutation;
        let (hosts, heals_at) = (self.plan.hosts, self.plan.heals_at);
        self.plan = Plan { mutation, heals_at, ..Plan::calm(hosts) };
        self.tell(|| "everything heals".to_owned());
        for host in 0..self.hosts.len() {
            self.start_process(host);
        }
    }

    /// Gives the machine an event and carries out what it answers.
    pub(crate) fn step(&mut self, host: usize, event: Event) {
        let at = self.at;
        let given = self.hosts[host].given(at);
        let actions = self.hosts[host].machine.step(given, event);
        if self.hosts[host].machine.wakes_at().is_some_and(|wakes_at| wakes_at <= given.now) {
            let standing = self.hosts[host].machine.standing();
            self.judge.broke(Broken::Spins, at, || format!("host {host}, {standing:?} after {event:?}"));
        }
        if self.trace.is_some() && !(actions.is_empty() && event == Event::Tick) {
            let standing = self.hosts[host].machine.standing();
            self.tell(|| format!("host {host}: {event:?} -> {actions:?}, {standing:?}"));
        }
        for action in actions {
            if !self.act(host, action) {
                return;
            }
        }
        self.schedule_tick(host);
    }

    fn schedule_tick(&mut self, host: usize) {
        let slot = &mut self.hosts[host];
        if !slot.alive {
            return;
        }
        let slice = LEASE / 20;
        let wait = match slot.machine.wakes_at() {
            Some(wakes_at) => slot.true_time_until(self.at, wakes_at).min(slice),
            None => slice,
        };
        if self.at + wait < slot.next_tick {
            slot.tick_generation += 1;
            slot.next_tick = self.at + wait;
            let generation = slot.tick_generation;
            self.later(wait, host, Happens::Tick { generation });
        }
    }

    /// Carries out one action. `false`: the process is no more.
    fn act(&mut self, host: usize, action: Action) -> bool {
        self.hosts[host].actions += 1;
        let exactly =
            self.plan.crash_at_action == Some(self.hosts[host].actions) && !self.hosts[host].crashed_once;
        if exactly || (!self.healed && self.chance.happens(self.plan.crash_per_action)) {
            self.judge.counts.add(crash_at(action));
            self.hosts[host].crashed_once = true;
            self.tell(|| format!("host {host}: crashes before {action:?}"));
            self.end_process(host);
            return false;
        }
        match action {
            Action::Acquire { ticket, owner } => {
                self.send(host, ticket, Request::TryLock { owner });
                if self.plan.mutation == Some(Mutation::AcquireNotAwaited) {
                    let fence = self.store_now() / 1000;
                    self.later(0, host, Happens::Answer { event: Event::Acquired { ticket, fence } });
                }
            }
            Action::Renew { ticket, owner, fence } => {
                self.send(host, ticket, Request::Renew { owner, fence })
            }
            Action::RaiseFence { ticket, .. } if self.plan.mutation == Some(Mutation::FenceNotRaised) => {
                self.later(MILLI, host, Happens::Answer { event: Event::FenceRaised { ticket } });
            }
            Action::RaiseFence { ticket, fence } => self.send(host, ticket, Request::Raise { fence }),
            Action::Release { ticket, owner, fence, ended } => {
                let clean = ended == bus::singleton::protocol::EndedAs::Clean;
                self.judge.counts.add(if clean { Count::ReleasedClean } else { Count::ReleasedCut });
                self.send(host, ticket, Request::Release { owner, fence: Some(fence), clean });
            }
            Action::Withdraw { ticket, owner } => {
                self.judge.counts.add(Count::Withdrawn);
                self.send(host, ticket, Request::Release { owner, fence: None, clean: true });
            }
            Action::StartRun { run, fence, deadlines } => {
                let (at, row, after_bound) = (self.at, self.messages.fence, self.bound_passed);
                if !self.hosts[host].runs.is_empty() {
                    self.judge.broke(Broken::TwoInOneProcess, at, || format!("host {host}"));
                }
                self.judge.started(at, host, fence, row);
                self.judge.changed_hands(at, after_bound);
                let confirmed = self.hosts[host].confirmed;
                self.judge.promised(at, host, deadlines.owned_until.as_nanos(), confirmed);
                self.start_run(host, run, fence, deadlines);
            }
            Action::Extend { run, deadlines } => {
                let (at, confirmed) = (self.at, self.hosts[host].confirmed);
                let now = bus::clock::BootInstant::from_nanos(self.hosts[host].clock(at));
                self.judge.promised(at, host, deadlines.owned_until.as_nanos(), confirmed);
                if let Some(run) = self.hosts[host].run_mut(run)
                    && !run.lost
                {
                    let again = now >= run.deadlines.intake_until && now < deadlines.intake_until;
                    run.deadlines = deadlines;
                    if again {
                        self.judge.counts.add(Count::HeldAgain);
                    }
                }
            }
            Action::Doubt { run, .. } => {
                self.judge.counts.add(Count::Doubted);
                let now = bus::clock::BootInstant::from_nanos(self.hosts[host].clock(self.at));
                if let Some(run) = self.hosts[host].run_mut(run) {
                    run.deadlines.intake_until = now.min(run.deadlines.intake_until);
                }
            }
            Action::Lose { run, .. } => {
                self.judge.counts.add(Count::Lost);
                self.judge.changed_hands(self.at, self.bound_passed);
                self.lose_run(host, run);
            }
            Action::Cut { run } => {
                self.judge.counts.add(Count::Cut);
                self.cut_run(host, run);
            }
            Action::DropRun { run } => self.cut_run(host, run),
            Action::Overrun { .. } => self.judge.counts.add(Count::Overrun),
            Action::Drain { run } => self.drain_run(host, run),
            Action::Tell(_) => {}
            Action::Finished => {
                self.tell(|| format!("host {host}: exits"));
                self.end_process(host);
                return false;
            }
        }
        true
    }

    fn answered(&mut self, host: usize, mut event: Event) {
        let before = self.hosts[host].machine.standing();
        match &mut event {
            Event::Renewed { ticket } => {
                let slot = &mut self.hosts[host];
                slot.confirmed = slot.confirmed.max(slot.sent_at(*ticket));
                if self.plan.mutation == Some(Mutation::InstantAfterAnswer) {
                    ticket.sent = bus::clock::BootInstant::from_nanos(slot.clock(self.at));
                }
            }
            Event::Acquired { ticket, .. } if before == Standing::Acquiring => {
                let slot = &mut self.hosts[host];
                slot.confirmed = slot.sent_at(*ticket);
            }
            Event::FenceHeldByOtherLock { .. } => self.judge.counts.add(Count::OtherLockWaited),
            _ => {}
        }
        self.step(host, event);
    }

    /// Tells of two runs at one moment, unless time stood still for one of them or the store itself forgot.
    fn watch_overlaps(&mut self) {
        let at = self.at;
        let mut running = self.hosts.iter().enumerate().filter(|(_, host)| {
            let thawing = host.thawed_at.is_some_and(|thawed| at < thawed + THAW_GRACE);
            !thawing && host.runs.iter().any(|run| !run.stuck)
        });
        let (first, second) = (running.next(), running.next());
        if let (Some((one, _)), Some((other, _))) = (first, second)
            && !self.judge.excuses(at)
        {
            self.judge.broke(Broken::Overlap, at, || format!("hosts {one} and {other}"));
        }
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.healed
    }

    fn start_run(
        &mut self,
        host: usize,
        id: RunId,
        fence: u64,
        deadlines: bus::singleton::protocol::Deadlines,
    ) {
        let run = Run {
            id,
            fence,
            deadlines,
            lost: false,
            draining: false,
            stuck: false,
            ending: false,
            already_reported: false,
            writing: None,
            writes: 0,
            in_handler: false,
        };
        self.hosts[host].runs.push(run);
        let step = if self.chance.happens(self.plan.start_fails) {
            self.judge.counts.add(Count::StartFailed);
            RunStep::FailStart
        } else {
            RunStep::Claim
        };
        let pause = self.chance.between(0, 5 * MILLI);
        self.later(pause, host, Happens::Run { run: id, step });
    }
}

fn crash_at(action: Action) -> Count {
    match action {
        Action::Acquire { .. } => Count::CrashAtAcquire,
        Action::Renew { .. } => Count::CrashAtRenew,
        Action::RaiseFence { .. } => Count::CrashAtRaiseFence,
        Action::Release { .. } => Count::CrashAtRelease,
        Action::Withdraw { .. } => Count::CrashAtWithdraw,
        Action::StartRun { .. } => Count::CrashAtStartRun,
        Action::Extend { .. } => Count::CrashAtExtend,
        Action::Doubt { .. } => Count::CrashAtDoubt,
        Action::Lose { .. } => Count::CrashAtLose,
        Action::Cut { .. } => Count::CrashAtCut,
        Action::Drain { .. } => Count::CrashAtDrain,
        Action::Overrun { .. } | Action::DropRun { .. } | Action::Tell(_) | Action::Finished => {
            Count::CrashAtOther
        }
    }
}

pub(crate) fn timing() -> LockTiming {
    LockTiming::new(Duration::from_nanos(LEASE)).checked().expect("the defaults fit")
}
