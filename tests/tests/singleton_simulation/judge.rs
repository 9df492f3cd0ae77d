//! Who watches. The judge sees true time, every run and every write, and knows nothing of the machine's insides.

use std::collections::HashMap;
use std::fmt;

use uuid::Uuid;

use super::plan::LEASE;

/// How long a thawed host has until it must have noticed: one slice of its keeper, and the time it takes to stop.
pub(crate) const THAW_GRACE: u64 = LEASE / 20 + LEASE / 50;

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    /// Two runs at one moment, neither of them frozen, stuck, or just thawed.
    Overlap,
    /// Two runs in one process.
    TwoInOneProcess,
    /// A fence that is not higher than every one before.
    FenceNotIncreasing,
    /// The store accepted a write with a fence below one that it had already accepted or raised.
    StaleWriteAccepted,
    /// One fence, two owners.
    FenceShared,
    /// `check()` passed after another had started.
    StaleCheckPassed,
    /// A term was promised for longer than its confirmed request allows.
    PromisedTooLong,
    /// A run started before the row carried its fence.
    StartedUnfenced,
    /// The machine wants to be woken at once, again and again.
    Spins,
    /// Nobody ran within the bound after the healing.
    NotAlive,
    /// The lock went on changing hands after the bound.
    NotSettled,
}

#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) broken: Broken,
    pub(crate) at: u64,
    pub(crate) detail: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:.3} leases: {}", self.broken, self.at as f64 / LEASE as f64, self.detail)
    }
}

/// Proof that each kind of fault happened, where it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Count {
    RequestLost,
    AnswerLost,
    AcquireAnswerLost,
    Duplicated,
    Late,
    StoreError,
    PausedMidHandlerBeyondLease,
    PausedMidSettleBeyondLease,
    Paused,
    Partitioned,
    WallJumpedWhileHeld,
    ClockSkewed,
    StoreRestarted,
    LockStoreRolledBack,
    MessageStoreRolledBack,
    StoreClockJumped,
    CrashAtAcquire,
    CrashAtRenew,
    CrashAtRaiseFence,
    CrashAtRelease,
    CrashAtWithdraw,
    CrashAtStartRun,
    CrashAtExtend,
    CrashAtDoubt,
    CrashAtLose,
    CrashAtCut,
    CrashAtDrain,
    CrashAtOther,
    StartFailed,
    RunStuck,
    OtherLockWaited,
    StaleWriteRefused,
    StaleCheckRefused,
    Doubted,
    HeldAgain,
    Lost,
    Cut,
    Overrun,
    ReleasedClean,
    ReleasedCut,
    Withdrawn,
    LastAct,
    Abandoned,
    Started,
    Settled,
}

/// How often each kind of thing happened.
#[derive(Clone, Debug)]
pub(crate) struct Counts([u64; COUNTS]);

/// As many as there are kinds.
pub(crate) const COUNTS: usize = Count::Settled as usize + 1;

impl Default for Counts {
    fn default() -> Self {
        Counts([0; COUNTS])
    }
}

impl Counts {
    pub(crate) fn add(&mut self, count: Count) {
        self.0[count as usize] += 1;
    }

    pub(crate) fn merge(&mut self, other: &Counts) {
        for (sum, n) in self.0.iter_mut().zip(other.0) {
            *sum += n;
        }
    }

    pub(crate) fn of(&self, count: Count) -> u64 {
        self.0[count as usize]
    }
}

#[derive(Debug, Default)]
pub(crate) struct Judge {
    pub(crate) counts: Counts,
    pub(crate) verdict: Option<Verdict>,
    /// Only what a user would see counts, not what the judge knows about the machine's duties.
    pub(crate) consequences_only: bool,
    /// Fences and whose they are; in the order of the grants.
    owners: HashMap<u64, Uuid>,
    highest_granted: u64,
    highest_started: u64,
    /// The highest fence that the message store has raised or accepted since it was last restored.
    in_force: u64,
    /// A restored or misdated store may let two hosts hold its lock until each has asked it once more; fencing holds.
    excused_until: u64,
    settled_in_time: bool,
    /// Starts and losses after the bound.
    unsettled: u64,
}

impl Judge {
    pub(crate) fn broke(&mut self, broken: Broken, at: u64, detail: impl FnOnce() -> String) {
        if self.verdict.is_none() {
            self.verdict = Some(Verdict { broken, at, detail: detail() });
        }
    }

    /// The lock's store gave out a fence.
    pub(crate) fn granted(&mut self, at: u64, owner: Uuid, fence: u64) {
        match self.owners.insert(fence, owner) {
            None if fence <= self.highest_granted => {
                let highest = self.highest_granted;
                self.broke(Broken::FenceNotIncreasing, at, || format!("{fence} after {highest}"));
            }
            Some(before) if before != owner => {
                self.broke(Broken::FenceShared, at, || format!("fence {fence} of {before} given to {owner}"));
            }
            _ => {}
        }
        self.highest_granted = self.highest_granted.max(fence);
    }

    pub(crate) fn started(&mut self, at: u64, host: usize, fence: u64, row: u64) {
        // Two winners of a store that forgot the first may both raise and then start in either order: what is in force
        // is the row's fence, and the lower one writes nothing.
        if fence < self.highest_started && at >= self.excused_until {
            let highest = self.highest_started;
            self.broke(Broken::FenceNotIncreasing, at, || {
                format!("host {host} starts under {fence}, after a start under {highest}")
            });
        }
        if row < fence && at >= self.excused_until && !self.consequences_only {
            self.broke(Broken::StartedUnfenced, at, || {
                format!("host {host} starts under {fence}, row {row}")
            });
        }
        self.highest_started = self.highest_started.max(fence);
        self.counts.add(Count::Started);
    }

    pub(crate) fn check_passed(&mut self, at: u64, host: usize, fence: u64) {
        if fence < self.highest_started && at >= self.excused_until {
            let highest = self.highest_started;
            self.broke(Broken::StaleCheckPassed, at, || {
                format!("host {host} passes under {fence}, {highest} has started")
            });
        }
    }

    pub(crate) fn raised(&mut self, fence: u64) {
        self.in_force = self.in_force.max(fence);
    }

    pub(crate) fn accepted(&mut self, at: u64, host: usize, fence: u64) {
        if fence < self.in_force {
            let in_force = self.in_force;
            self.broke(Broken::StaleWriteAccepted, at, || {
                format!("host {host} wrote under {fence}, {in_force} is in force")
            });
        }
        self.in_force = fence.max(self.in_force);
    }

    pub(crate) fn promised(&mut self, at: u64, host: usize, owned_until: u64, confirmed: u64) {
        if owned_until > confirmed + LEASE * 3 / 4 && !self.consequences_only {
            self.broke(Broken::PromisedTooLong, at, || {
                format!("host {host} owns until {owned_until}, confirmed at {confirmed}")
            });
        }
    }

    pub(crate) fn message_store_restored(&mut self, fence: u64, at: u64) {
        self.in_force = fence;
        self.excused_until = self.excused_until.max(at + LEASE);
    }

    pub(crate) fn lock_store_untrusted(&mut self, at: u64) {
        self.excused_until = self.excused_until.max(at + LEASE);
    }

    pub(crate) fn excuses(&self, at: u64) -> bool {
        at < self.excused_until
    }

    pub(crate) fn settled(&mut self, healed: bool) {
        self.counts.add(Count::Settled);
        self.settled_in_time |= healed;
    }

    pub(crate) fn bound_reached(&mut self, at: u64, running: usize) {
        if !self.settled_in_time || running != 1 {
            let settled = self.settled_in_time;
            self.broke(Broken::NotAlive, at, || {
                format!("{running} runs, settled since the healing: {settled}")
            });
        }
    }

    pub(crate) fn changed_hands(&mut self, at: u64, after_bound: bool) {
        if after_bound {
            self.unsettled += 1;
            self.broke(Broken::NotSettled, at, || "the lock changes hands without a fault".to_owned());
        }
    }
}
