//! Puts runs together from their events, and finds those that go on at one moment.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

use super::Report;
use crate::history::{Event, Kind};

const SECOND: u64 = 1_000_000_000;
/// How long after its thaw a process may go on with a run before that counts again.
const AFTER_THAW: u64 = SECOND;
/// A kill is noted before it is sent; what the victim writes in between belongs to before the kill.
const KILL_ON_ITS_WAY: u64 = SECOND;

/// One run of one handler.
#[derive(Debug)]
pub(super) struct Run {
    /// The process it was in.
    pub(super) p: u32,
    /// Its message.
    pub(super) m: String,
    /// The fence of its term.
    pub(super) fence: u64,
    /// When it began.
    pub(super) start: u64,
    /// When it ended; `u64::MAX` when it never did.
    pub(super) end: u64,
    /// What of it counts as none.
    frozen: Vec<(u64, u64)>,
}

impl Run {
    /// What of it counts, in order.
    fn segments(&self) -> Vec<(u64, u64)> {
        let (mut segments, mut from) = (Vec::new(), self.start);
        for (freeze, until) in &self.frozen {
            segments.push((from, *freeze));
            from = from.max(*until);
        }
        segments.push((from, self.end));
        segments.retain(|(from, to)| from < to);
        segments
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p, m, fence, start, end, .. } = self;
        write!(f, "{m} in process {p} under {fence} from {start} to ")?;
        if *end == u64::MAX { write!(f, "never") } else { write!(f, "{end}") }
    }
}

/// A stop of a process, from the freeze to the thaw; `u64::MAX` when there was none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Freeze {
    /// The process.
    pub(super) victim: u32,
    /// From then on it may have been stopped.
    pub(super) from: u64,
    /// From then on it may have run again.
    pub(super) to: u64,
}

/// All runs, in the order of their starts.
#[derive(Debug)]
pub(super) struct Runs(Vec<Run>);

impl Runs {
    /// Puts together the runs of a history that is in the order of time.
    pub(super) fn of(events: &[Event], report: &mut Report) -> Self {
        let mut runs = Self(pair_starts_with_ends(events, report));
        runs.end_killed(events);
        for run in runs.iter().filter(|run| run.end == u64::MAX) {
            report.complain(format!("endless: {run}"));
        }
        for freeze in freezes(events) {
            let until = freeze.to.saturating_add(AFTER_THAW);
            let hit =
                |run: &&mut Run| run.p == freeze.victim && run.start < freeze.from && freeze.from < run.end;
            for run in runs.0.iter_mut().filter(hit) {
                run.frozen.push((freeze.from, until));
            }
        }
        runs
    }

    /// The runs in the order of their starts.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Run> {
        self.0.iter()
    }

    /// Whether the process was inside a run at `t`, which may be the moment that ended the run.
    pub(super) fn inside(&self, p: u32, t: u64) -> bool {
        self.iter().any(|run| run.p == p && run.start < t && t <= run.end)
    }

    fn end_killed(&mut self, events: &[Event]) {
        for kill in events.iter().filter(|event| event.e == Kind::Kill) {
            let mine = |run: &&mut Run| {
                run.end == u64::MAX
                    && Some(run.p) == kill.victim
                    && run.start < kill.t.saturating_add(KILL_ON_ITS_WAY)
            };
            for run in self.0.iter_mut().filter(mine) {
                run.end = kill.t.max(run.start);
            }
        }
    }

    /// All pairs of runs that have a moment in common.
    pub(super) fn overlaps(&self) -> Vec<(&Run, &Run)> {
        let mut segments: Vec<(u64, u64, usize)> = Vec::new();
        for (index, run) in self.iter().enumerate() {
            segments.extend(run.segments().into_iter().map(|(from, to)| (from, to, index)));
        }
        segments.sort_unstable();
        let (mut going_on, mut pairs) = (Vec::<(u64, usize)>::new(), HashSet::new());
        for (from, to, index) in segments {
            going_on.retain(|(end, _)| *end > from);
            let others = going_on.iter().map(|(_, other)| *other).filter(|other| *other != index);
            pairs.extend(others.map(|other| (other.min(index), other.max(index))));
            going_on.push((to, index));
        }
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort_unstable();
        pairs.into_iter().map(|(one, other)| (&self.0[one], &self.0[other])).collect()
    }
}

fn pair_starts_with_ends(events: &[Event], report: &mut Report) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut open: HashMap<(u32, &str, u64), VecDeque<usize>> = HashMap::new();
    for event in events {
        let (Some(m), Some(fence)) = (event.m.as_deref(), event.fence) else { continue };
        let same = open.entry((event.p, m, fence)).or_default();
        match event.e {
            Kind::RunStart => {
                same.push_back(runs.len());
                let (p, m, start) = (event.p, m.to_owned(), event.t);
                runs.push(Run { p, m, fence, start, end: u64::MAX, frozen: Vec::new() });
            }
            Kind::RunEnd | Kind::RunCut => match same.pop_front() {
                Some(run) => runs[run].end = event.t,
                None => report.complain(format!("an end without a start: {event:?}")),
            },
            _ => {}
        }
    }
    runs
}

/// All stops of processes, in the order of time.
pub(super) fn freezes(events: &[Event]) -> Vec<Freeze> {
    let mut freezes: Vec<Freeze> = Vec::new();
    for event in events {
        let Some(victim) = event.victim else { continue };
        match event.e {
            Kind::Freeze => freezes.push(Freeze { victim, from: event.t, to: u64::MAX }),
            Kind::Thaw => {
                let mine = |freeze: &&mut Freeze| freeze.victim == victim && freeze.to == u64::MAX;
                for freeze in freezes.iter_mut().filter(mine) {
                    freeze.to = event.t;
                }
            }
            _ => {}
        }
    }
    freezes
}
