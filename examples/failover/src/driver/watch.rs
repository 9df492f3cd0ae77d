//! Follows the histories while they are written, to know who runs what at this moment.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use crate::history::{Event, Kind, now};
use crate::work::{Style, Task};

/// A run that has begun and, as far as was written, not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) pid: u32,
    m: String,
    since: u64,
}

impl Target {
    /// How long it is going to run yet.
    pub(super) fn remaining(&self) -> Duration {
        let whole = Task::of_id(&self.m).map_or(Duration::ZERO, Task::run_time);
        whole.saturating_sub(Duration::from_nanos(now().saturating_sub(self.since)))
    }

    /// How it runs.
    pub(super) fn style(&self) -> Option<Style> {
        Task::of_id(&self.m).map(Task::style)
    }
}

/// Everything that the histories have said so far.
#[derive(Debug, Default)]
pub(super) struct Watch {
    tails: HashMap<u32, Tail>,
    running: HashMap<u32, Target>,
    done: HashSet<String>,
    /// How many messages the store has confirmed.
    pub(super) sent: usize,
    /// For each process, when its last run began and when its last effect was accepted.
    last_start: HashMap<u32, u64>,
    last_effect: HashMap<u32, u64>,
}

impl Watch {
    /// Follows one more process.
    pub(super) fn follow(&mut self, pid: u32, path: PathBuf) {
        self.tails.insert(pid, Tail { path, file: None, rest: Vec::new() });
    }

    /// Reads to the end what a process has written that has ended.
    pub(super) fn forget(&mut self, pid: u32) {
        self.poll();
        self.tails.remove(&pid);
        self.running.remove(&pid);
    }

    /// Reads what is new.
    pub(super) fn poll(&mut self) {
        let events: Vec<Event> = self.tails.values_mut().flat_map(Tail::read).collect();
        for event in events {
            self.take(event);
        }
    }

    /// The run that goes on, when exactly one does.
    pub(super) fn target(&self) -> Option<&Target> {
        let mut running = self.running.values();
        running.next().filter(|_| running.next().is_none())
    }

    /// Whether that run still goes on.
    pub(super) fn goes_on(&self, target: &Target) -> bool {
        self.running.get(&target.pid) == Some(target)
    }

    /// How many messages have had their effect.
    pub(super) fn done(&self) -> usize {
        self.done.len()
    }

    /// Whether anybody else has begun a run since.
    pub(super) fn others_ran(&self, victim: u32, since: u64) -> bool {
        self.last_start.iter().any(|(pid, start)| *pid != victim && *start > since)
    }

    /// Whether anybody else has had an effect since.
    pub(super) fn others_had_effect(&self, victim: u32, since: u64) -> bool {
        self.last_effect.iter().any(|(pid, effect)| *pid != victim && *effect > since)
    }

    fn take(&mut self, event: Event) {
        match (event.e, event.m) {
            (Kind::SendOk, _) => self.sent += 1,
            (Kind::RunStart, Some(m)) => {
                self.last_start.insert(event.p, event.t);
                self.running.insert(event.p, Target { pid: event.p, m, since: event.t });
            }
            (Kind::RunEnd | Kind::RunCut, _) => {
                self.running.remove(&event.p);
            }
            (Kind::EffectOk, Some(m)) => {
                self.last_effect.insert(event.p, event.t);
                self.done.insert(m);
            }
            _ => {}
        }
    }
}

/// A history file that grows.
#[derive(Debug)]
struct Tail {
    path: PathBuf,
    file: Option<File>,
    /// The beginning of a line whose end has not been read.
    rest: Vec<u8>,
}

impl Tail {
    /// The events that were added since the last time; none as long as there is no file.
    fn read(&mut self) -> Vec<Event> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Vec::new() };
        if file.read_to_end(&mut self.rest).is_err() {
            return Vec::new();
        }
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        // What cannot be read is for the checker to complain of.
        lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_run_is_a_target_from_its_start_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("host-7.jsonl");
        let mut watch = Watch::default();
        watch.follow(7, path.clone());
        watch.poll();
        let m = Task { number: 1_000 }.id(1).to_string();
        let event = |e| Event { p: 7, ..Event::now(e).message(&m).fence(1) };
        let mut file = File::create(path).unwrap();
        let line = |event: &Event| serde_json::to_string(event).unwrap() + "\n";

        let start = line(&event(Kind::RunStart));
        file.write_all(&start.as_bytes()[..20]).unwrap();
        watch.poll();
        assert_eq!(watch.target(), None);
        file.write_all(&start.as_bytes()[20..]).unwrap();
        watch.poll();
        let target = watch.target().unwrap().clone();
        assert!(target.remaining() > Duration::from_secs(2));
        assert!(watch.goes_on(&target) && watch.others_ran(8, 0) && !watch.others_ran(7, 0));

        file.write_all(line(&event(Kind::EffectOk)).as_bytes()).unwrap();
        file.write_all(line(&event(Kind::RunEnd)).as_bytes()).unwrap();
        watch.poll();
        assert!(!watch.goes_on(&target) && watch.target().is_none());
        assert_eq!(watch.done(), 1);
        assert!(watch.others_had_effect(8, 0) && !watch.others_had_effect(7, 0));
    }
}
