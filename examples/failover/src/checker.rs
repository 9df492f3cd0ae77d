//! Judges the histories of a fleet. It knows the events and the plan, and nothing of `bus`.
//!
//! | rule | broken when |
//! |--|--|
//! | no overlap | two runs go on at one moment, whatever their fences and processes |
//! | nothing lost | a confirmed message is neither in the register nor waiting nor a dead letter |
//! | nothing dead, nothing left | the dead letters or the queue are not empty at the end |
//! | nothing stale | the register accepted a fence below one that it had accepted before |
//! | the register remembers | an accepted effect is not its entry, nor replaced by a later one |
//! | a run needs the lock | a run begins in a process that has not acquired the lock under that fence before |
//! | fences rise | `lock.acquired`, in the order of time, does not come with a higher fence each time |
//! | quick take-over | the next run begins later than one second after the last run of a process that was told to stop, or later than the lease and two seconds after a kill; either is longer by the time in which the standbys of such a lock ask once |
//! | the faults happened | fewer signals than planned, freezes shorter than the lease, kills (above a fifth) or freezes outside of a run, no late write that had to be refused |
//!
//! A run lasts from its `run.start` to its `run.end` or `run.cut`, or to the kill of its process; a run
//! without any of these never ends. What lies between a freeze inside a run and one second after its thaw
//! counts as no part of the run: a process that does not run cannot know that its term is over.

mod faults;
mod read;
mod runs;
mod take_over;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::history::{Event, Kind};
use runs::Runs;
pub use take_over::{Cause, TakeOver};

/// Where a process is frozen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum FreezeIn {
    /// In a handler, while nobody writes to the store: the others can take over.
    #[default]
    Handler,
    /// In a commit of the store: everybody has to wait.
    Commit,
}

/// What was to happen, so that a run in which nothing happened cannot pass.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How many messages were to be sent.
    pub messages: usize,
    /// How many times the holder was to be killed.
    pub kills: usize,
    /// How many times it was to be frozen.
    pub freezes: usize,
    /// Where it was to be frozen.
    pub freeze_in: FreezeIn,
    /// How many times it was to be told to stop.
    pub terms: usize,
    /// The lease of the lock.
    pub lease: Duration,
    /// How long at most until a standby learns that the lock is free: how often it asks, or nothing where it is told.
    pub notice: Duration,
}

/// The verdict.
#[derive(Debug, Default)]
pub struct Report {
    /// Pairs of runs that went on at one moment.
    pub overlaps: usize,
    /// Confirmed messages that are nowhere.
    pub lost: usize,
    /// Dead letters.
    pub dead: usize,
    /// Messages that still wait.
    pub left: usize,
    /// Effects accepted under a fence below one that had been accepted.
    pub stale_accepted: usize,
    /// Effects refused.
    pub stale_attempts: usize,
    /// Runs of messages that had been run before.
    pub redelivered: usize,
    /// Kills that hit a process inside a run.
    pub kills_in_run: usize,
    /// Freezes that hit a process inside a run.
    pub freezes_in_run: usize,
    /// How long it took others to go on, fault by fault.
    pub take_overs: Vec<TakeOver>,
    /// All that is wrong, in words.
    pub complaints: Vec<String>,
}

impl Report {
    /// Whether no rule was broken.
    pub fn passed(&self) -> bool {
        self.complaints.is_empty()
    }

    /// What the process that checked is to end with.
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.passed())
    }

    fn complain(&mut self, complaint: impl Into<String>) {
        self.complaints.push(complaint.into());
    }
}

/// The last line of a check, to be read by programs.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { overlaps, lost, dead, stale_accepted, stale_attempts, redelivered, .. } = self;
        let Self { kills_in_run, freezes_in_run, .. } = self;
        write!(
            f,
            "overlaps={overlaps} lost={lost} dead={dead} stale_accepted={stale_accepted} \
             stale_attempts={stale_attempts} redelivered={redelivered} \
             kills_in_run={kills_in_run} freezes_in_run={freezes_in_run}"
        )
    }
}

/// Judges all the history files in a directory.
///
/// # Errors
/// When the directory or a file in it cannot be read. A line that makes no sense is a complaint, no error.
pub fn check_directory(directory: &Path, plan: &Plan) -> std::io::Result<Report> {
    let (events, complaints) = read::read_directory(directory)?;
    Ok(check(events, complaints, plan))
}

fn check(mut events: Vec<Event>, complaints: Vec<String>, plan: &Plan) -> Report {
    events.sort_by_key(|event| event.t);
    let mut report = Report { complaints, ..Report::default() };
    let runs = Runs::of(&events, &mut report);
    check_overlaps(&runs, &mut report);
    check_messages(&events, plan, &mut report);
    check_effects(&events, &mut report);
    check_register(&events, &mut report);
    check_fences(&events, &mut report);
    count_redelivered(&runs, &mut report);
    take_over::check(&events, &runs, plan, &mut report);
    faults::check(&events, &runs, plan, &mut report);
    report
}

fn check_overlaps(runs: &Runs, report: &mut Report) {
    let overlaps = runs.overlaps();
    report.overlaps = overlaps.len();
    for (one, other) in overlaps {
        report.complain(format!("overlap: {one} and {other}"));
    }
}

fn check_messages(events: &[Event], plan: &Plan, report: &mut Report) {
    let sent = messages(events, Kind::SendOk);
    let (done, left, dead) =
        (messages(events, Kind::SettledBy), messages(events, Kind::Left), messages(events, Kind::Dead));
    (report.left, report.dead) = (left.len(), dead.len());
    if !left.is_empty() {
        report.complain(format!("left: {} messages still wait", left.len()));
    }
    if !dead.is_empty() {
        report.complain(format!("dead: {} messages are dead letters", dead.len()));
    }
    for m in &sent {
        if !done.contains(m) && !left.contains(m) && !dead.contains(m) {
            report.lost += 1;
            report.complain(format!("lost: {m} was confirmed and is nowhere"));
        }
    }
    if sent.len() != plan.messages {
        report.complain(format!("{} of {} messages were sent", sent.len(), plan.messages));
    }
}

fn messages(events: &[Event], kind: Kind) -> HashSet<&str> {
    events.iter().filter(|event| event.e == kind).filter_map(|event| event.m.as_deref()).collect()
}

fn check_effects(events: &[Event], report: &mut Report) {
    let mut highest = 0;
    for event in events {
        match (event.e, event.fence) {
            (Kind::EffectOk, Some(fence)) if fence < highest => {
                report.stale_accepted += 1;
                let m = event.m.as_deref().unwrap_or("?");
                report.complain(format!("stale: {m} accepted under {fence}, after {highest}"));
            }
            (Kind::EffectOk, Some(fence)) => highest = fence,
            (Kind::EffectRefused, _) => report.stale_attempts += 1,
            _ => {}
        }
    }
}

fn check_register(events: &[Event], report: &mut Report) {
    let by_kind = |kind| {
        let mut fences: HashMap<&str, u64> = HashMap::new();
        for event in events.iter().filter(|event| event.e == kind) {
            if let (Some(m), Some(fence)) = (event.m.as_deref(), event.fence) {
                let highest = fences.entry(m).or_default();
                *highest = fence.max(*highest);
            }
        }
        fences
    };
    let entries = by_kind(Kind::SettledBy);
    for (m, accepted) in by_kind(Kind::EffectOk) {
        // Higher is fine: a process can be killed between a write and its line in the history.
        if entries.get(m).is_none_or(|entry| *entry < accepted) {
            report.complain(format!("forgotten: {m} was accepted under {accepted}, the register differs"));
        }
    }
}

fn check_fences(events: &[Event], report: &mut Report) {
    let mut last = None;
    let mut acquired = HashSet::new();
    for event in events.iter().filter(|event| matches!(event.e, Kind::LockAcquired | Kind::RunStart)) {
        if event.e == Kind::RunStart {
            if !acquired.contains(&(event.p, event.fence)) {
                report.complain(format!("no lock: a run without one: {event:?}"));
            }
            continue;
        }
        acquired.insert((event.p, event.fence));
        if event.fence <= last {
            report.complain(format!("fence: {:?} was acquired after {last:?}", event.fence));
        }
        last = event.fence.max(last);
    }
}

fn count_redelivered(runs: &Runs, report: &mut Report) {
    let distinct: HashSet<&str> = runs.iter().map(|run| run.m.as_str()).collect();
    report.redelivered = runs.iter().count() - distinct.len();
}
