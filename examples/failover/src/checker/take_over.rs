//! How long it took the others to go on after the holder was stopped.

use std::fmt;
use std::time::Duration;

use super::runs::{Run, Runs};
use super::{Plan, Report};
use crate::history::{Event, Kind};

/// What made the holder stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// SIGTERM.
    Term,
    /// SIGKILL.
    Kill,
}

impl Cause {
    fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Term => Some(Self::Term),
            Kind::Kill => Some(Self::Kill),
            _ => None,
        }
    }

    fn allows(self, took: Duration, plan: &Plan) -> bool {
        match self {
            Self::Term => took < self.limit(plan),
            Self::Kill => took <= self.limit(plan),
        }
    }

    /// How long nobody may work.
    pub fn limit(self, plan: &Plan) -> Duration {
        match self {
            Self::Term => plan.notice + Duration::from_secs(1),
            Self::Kill => plan.lease + plan.notice + Duration::from_secs(2),
        }
    }
}

/// From the end of one process's work to the beginning of the next one's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeOver {
    /// Why the first process ended.
    pub cause: Cause,
    /// The process that ended.
    pub victim: u32,
    /// The process that went on.
    pub successor: u32,
    /// How long nobody worked: from the kill, or from the end of the last run of a process that was told to stop.
    pub took: Duration,
}

impl fmt::Display for TakeOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, victim, successor, took } = self;
        let (cause, since) = match cause {
            Cause::Term => ("SIGTERM", "from the end of its last run"),
            Cause::Kill => ("SIGKILL", "from the kill"),
        };
        write!(f, "take-over after {cause} of {victim}: {successor} runs {took:.3?} {since}")
    }
}

/// Measures every take-over and complains of each that is too slow or did not take place.
pub(super) fn check(events: &[Event], runs: &Runs, plan: &Plan, report: &mut Report) {
    for event in events {
        let (Some(cause), Some(victim)) = (Cause::of(event.e), event.victim) else { continue };
        let since = match cause {
            Cause::Kill => event.t,
            Cause::Term => end_of_last_run(runs, victim).max(event.t),
        };
        let Some(next) = runs.iter().find(|run| run.p != victim && run.start >= since) else {
            report.complain(format!("take-over: nobody went on after the {cause:?} of {victim}"));
            continue;
        };
        let took = Duration::from_nanos(next.start - since);
        let take_over = TakeOver { cause, victim, successor: next.p, took };
        if !cause.allows(took, plan) {
            report.complain(format!("too slow: {take_over}"));
        }
        report.take_overs.push(take_over);
    }
}

fn end_of_last_run(runs: &Runs, p: u32) -> u64 {
    let ends = |run: &Run| (run.p == p && run.end != u64::MAX).then_some(run.end);
    runs.iter().filter_map(ends).max().unwrap_or(0)
}
