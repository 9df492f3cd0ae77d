//! What goes wrong in one seed. Each seed has a few kinds of fault rather than all of them: many faults at once hide
//! each other, and a protocol that never gets to hold its lock proves nothing.

use super::chance::Chance;

/// One lease, in nanoseconds of true time. Everything else is told in parts of it.
pub(crate) const LEASE: u64 = 1_000_000_000;
pub(crate) const MILLI: u64 = 1_000_000;

/// A defect that is put into the simulated store or driver, never into the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The store extends whatever record there is.
    RenewWithoutOwnerCheck,
    /// `check()` looks at whether the machine has said "lost", not at the clock.
    FlagInsteadOfDeadline,
    /// The confirmed instant is read after the answer has come.
    InstantAfterAnswer,
    /// The driver says that a run has ended when it is only asked to.
    ReleaseBeforeRunEnds,
    /// The store starts counting again once a lock is released.
    FenceResetOnRelease,
    /// The message store looks at the fence in one statement and writes in another.
    FenceRowNotLocked,
    /// The driver says that a lost run has ended while it goes on.
    CandidateBeforeJoin,
    /// The store deletes whatever record there is.
    ReleaseWithoutOwnerCheck,
    /// The driver takes an unanswered acquire for a won one.
    AcquireNotAwaited,
    /// The driver says that the fence is raised without raising it.
    FenceNotRaised,
    /// The driver goes on with what was taken in before the loss: the token is never cancelled, nothing is cut.
    LostIsIgnored,
}

pub(crate) const MUTATIONS: [Mutation; 11] = [
    Mutation::RenewWithoutOwnerCheck,
    Mutation::FlagInsteadOfDeadline,
    Mutation::InstantAfterAnswer,
    Mutation::ReleaseBeforeRunEnds,
    Mutation::FenceResetOnRelease,
    Mutation::FenceRowNotLocked,
    Mutation::CandidateBeforeJoin,
    Mutation::ReleaseWithoutOwnerCheck,
    Mutation::AcquireNotAwaited,
    Mutation::FenceNotRaised,
    Mutation::LostIsIgnored,
];

/// Frequencies are per mille of whatever they are about; 0 switches a kind of fault off.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) hosts: usize,
    pub(crate) mutation: Option<Mutation>,
    /// Usual one-way delay, at most.
    pub(crate) delay: u64,
    pub(crate) lost_request: u64,
    pub(crate) lost_answer: u64,
    pub(crate) duplicated: u64,
    /// Delayed by up to one and a half leases.
    pub(crate) late: u64,
    pub(crate) errors: u64,
    pub(crate) crash_per_action: u64,
    /// Crash each host at exactly this action, once.
    pub(crate) crash_at_action: Option<u64>,
    pub(crate) pause_mid_handler: u64,
    pub(crate) pause_mid_settle: u64,
    pub(crate) start_fails: u64,
    pub(crate) stuck_run: u64,
    pub(crate) slow_handler: u64,
    /// Faults that come by themselves: how many over the whole run.
    pub(crate) pauses: u64,
    pub(crate) partitions: u64,
    pub(crate) wall_jumps: u64,
    pub(crate) store_restarts: u64,
    pub(crate) lock_rollbacks: u64,
    pub(crate) message_rollbacks: u64,
    pub(crate) store_clock_jumps: u64,
    pub(crate) stops: u64,
    /// Greatest deviation of a host's clock rate, in parts per million.
    pub(crate) skew_ppm: u64,
    /// The endpoint's row is bound to another lock for this long at first.
    pub(crate) other_lock: u64,
    pub(crate) hints: bool,
    /// When all faults end.
    pub(crate) heals_at: u64,
}

impl Plan {
    /// Nothing goes wrong.
    pub(crate) fn calm(hosts: usize) -> Self {
        Plan {
            hosts,
            mutation: None,
            delay: 10 * MILLI,
            lost_request: 0,
            lost_answer: 0,
            duplicated: 0,
            late: 0,
            errors: 0,
            crash_per_action: 0,
            crash_at_action: None,
            pause_mid_handler: 0,
            pause_mid_settle: 0,
            start_fails: 0,
            stuck_run: 0,
            slow_handler: 20,
            pauses: 0,
            partitions: 0,
            wall_jumps: 0,
            store_restarts: 0,
            lock_rollbacks: 0,
            message_rollbacks: 0,
            store_clock_jumps: 0,
            stops: 0,
            skew_ppm: 0,
            other_lock: 0,
            hints: true,
            heals_at: 0,
        }
    }

    pub(crate) fn of_seed(chance: &mut Chance) -> Self {
        let mut plan = Plan::calm(chance.between(2, 4) as usize);
        plan.heals_at = chance.between(8, 16) * LEASE;
        plan.delay = chance.between(1, 60) * MILLI;
        plan.hints = chance.happens(500);
        plan.skew_ppm = if chance.happens(500) { 15_000 } else { 0 };
        let mut some = |of_seeds: u64, low: u64, high: u64| {
            if chance.happens(of_seeds) { chance.between(low, high) } else { 0 }
        };
        plan.lost_request = some(300, 10, 200);
        plan.lost_answer = some(300, 10, 300);
        plan.duplicated = some(300, 10, 300);
        plan.late = some(300, 10, 150);
        plan.errors = some(300, 10, 200);
        plan.crash_per_action = some(250, 2, 30);
        plan.pause_mid_handler = some(300, 5, 60);
        plan.pause_mid_settle = some(300, 5, 60);
        plan.start_fails = some(150, 50, 600);
        plan.stuck_run = some(250, 100, 700);
        plan.slow_handler = some(400, 10, 150);
        plan.pauses = some(300, 1, 6);
        plan.partitions = some(300, 1, 5);
        plan.wall_jumps = some(250, 1, 8);
        plan.store_restarts = some(200, 1, 3);
        plan.lock_rollbacks = some(150, 1, 2);
        plan.message_rollbacks = some(100, 1, 2);
        plan.store_clock_jumps = some(100, 1, 2);
        plan.stops = some(350, 1, 6);
        plan.other_lock = some(80, LEASE / 2, 4 * LEASE);
        if plan.lock_rollbacks > 0 {
            // A store that is restored from a backup *and* whose clock is set back cannot know which fences it has
            // given out. No store can; that pair is outside the promise.
            plan.store_clock_jumps = 0;
        }
        plan
    }

    /// How long after the healing a term has to be settled.
    ///
    /// At most: a request from before (1.5 leases under way) that takes the lock for an owner who gave up, its lease,
    /// a run that cannot be cut (up to 3 leases), a store clock that was set back (1), and the standby's poll with what
    /// it takes to start. Who gave up on failing starts may pause for 16 leases.
    pub(crate) fn bound(&self) -> u64 {
        let mut bound = 4 * LEASE;
        if self.stuck_run > 0 {
            bound += 3 * LEASE;
        }
        if self.store_clock_jumps > 0 {
            bound += LEASE;
        }
        if self.start_fails > 0 {
            bound += 17 * LEASE;
        }
        bound + self.other_lock
    }

    pub(crate) fn ends_at(&self) -> u64 {
        self.heals_at + self.bound() + 3 * LEASE
    }
}
