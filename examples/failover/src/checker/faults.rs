//! Whether the faults that were planned took place: a test of faults that hit nothing proves nothing.

use std::time::Duration;

use super::runs::{Freeze, Runs, freezes};
use super::{FreezeIn, Plan, Report};
use crate::history::{Event, Kind};

/// What had left a commit before it was frozen may still be on its way into a history.
const ALREADY_ON_ITS_WAY: u64 = 200_000_000;

/// Counts the faults and complains of those that are missing.
pub(super) fn check(events: &[Event], runs: &Runs, plan: &Plan, report: &mut Report) {
    for (name, kind, planned) in [
        ("kill", Kind::Kill, plan.kills),
        ("freeze", Kind::Freeze, plan.freezes),
        ("term", Kind::Term, plan.terms),
    ] {
        let happened = events.iter().filter(|event| event.e == kind).count();
        if happened != planned {
            report.complain(format!("faults: {happened} of {planned} times {name}"));
        }
    }
    check_kills(events, runs, plan, report);
    check_terms(events, report);
    let freezes = freezes(events);
    check_freezes(&freezes, runs, plan, report);
    if plan.freeze_in == FreezeIn::Commit {
        check_that_all_waited(&freezes, events, report);
    }
}

fn check_kills(events: &[Event], runs: &Runs, plan: &Plan, report: &mut Report) {
    let in_run = |event: &&Event| {
        event.e == Kind::Kill && event.victim.is_some_and(|victim| runs.inside(victim, event.t))
    };
    report.kills_in_run = events.iter().filter(in_run).count();
    if report.kills_in_run * 10 < plan.kills * 8 {
        report.complain(format!("faults: only {} of {} kills in a run", report.kills_in_run, plan.kills));
    }
}

fn check_terms(events: &[Event], report: &mut Report) {
    for victim in events.iter().filter(|event| event.e == Kind::Term).filter_map(|event| event.victim) {
        if !events.iter().any(|event| event.e == Kind::Exit && event.p == victim) {
            report.complain(format!("faults: process {victim} was told to stop and never did"));
        }
    }
}

fn check_freezes(freezes: &[Freeze], runs: &Runs, plan: &Plan, report: &mut Report) {
    report.freezes_in_run = freezes.iter().filter(|freeze| runs.inside(freeze.victim, freeze.from)).count();
    if report.freezes_in_run < freezes.len() {
        let missed = freezes.len() - report.freezes_in_run;
        report.complain(format!("faults: {missed} of {} freezes outside of a run", freezes.len()));
    }
    for Freeze { victim, from, to } in freezes {
        let lasted = Duration::from_nanos(to - from);
        if *to == u64::MAX {
            report.complain(format!("faults: process {victim} was never thawed"));
        } else if lasted <= plan.lease {
            report.complain(format!("faults: process {victim} was frozen for {lasted:?}, below the lease"));
        }
    }
    if plan.freezes > 0 && report.stale_attempts == 0 {
        report.complain("faults: no frozen process came back with a late write");
    }
}

/// A process that is stopped inside a commit holds the store: nobody can send or win a lock meanwhile.
fn check_that_all_waited(freezes: &[Freeze], events: &[Event], report: &mut Report) {
    for Freeze { victim, from, to } in freezes {
        let during = |event: &&Event| event.t > from + ALREADY_ON_ITS_WAY && event.t < *to;
        let wrote = |event: &&Event| matches!(event.e, Kind::SendOk | Kind::LockAcquired | Kind::SettleOk);
        if let Some(event) = events.iter().filter(during).find(wrote) {
            report.complain(format!("faults: {victim} was not frozen in a commit, there was {event:?}"));
        }
    }
}
