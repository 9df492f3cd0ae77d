//! One simulated process: the machine itself, two clocks, and the runs it was told to start.

use bus::clock::BootInstant;
use bus::singleton::machine::Machine;
use bus::singleton::protocol::{Deadlines, Given, RunId, Ticket};
use uuid::Uuid;

use super::chance::Chance;

/// What a run does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunStep {
    Claim,
    HandlerDone,
    SettleSend,
    /// The write numbered so has been answered.
    Answered {
        write: u64,
        accepted: bool,
    },
    /// Nobody waits longer for the answer to the write numbered so.
    GivenUp {
        write: u64,
    },
    End {
        clean: bool,
    },
    FailStart,
}

/// A run that goes on, whatever the machine believes.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) fence: u64,
    pub(crate) deadlines: Deadlines,
    /// The machine said so, or the run read it on the clock.
    pub(crate) lost: bool,
    pub(crate) draining: bool,
    /// It was cut and does not end.
    pub(crate) stuck: bool,
    pub(crate) ending: bool,
    /// A mutated driver has already said that it ended.
    pub(crate) already_reported: bool,
    /// The write in flight, and whether it settles.
    pub(crate) writing: Option<(u64, bool)>,
    pub(crate) writes: u64,
    pub(crate) in_handler: bool,
}

pub(crate) struct Host {
    pub(crate) machine: Machine,
    pub(crate) alive: bool,
    /// Grows with each restart; what belongs to an earlier process reaches nobody.
    pub(crate) incarnation: u64,
    pub(crate) frozen_until: u64,
    /// When the last freeze ended.
    pub(crate) thawed_at: Option<u64>,
    clock_base: u64,
    pub(crate) skew_ppm: i64,
    pub(crate) wall_offset: u64,
    pub(crate) runs: Vec<Run>,
    pub(crate) actions: u64,
    pub(crate) crashed_once: bool,
    pub(crate) partitioned_until: u64,
    pub(crate) tick_generation: u64,
    pub(crate) next_tick: u64,
    /// When each request really left, by this host's clock: the judge's own notes.
    sent: Vec<(u64, u64)>,
    /// The latest confirmed request of the present term, likewise.
    pub(crate) confirmed: u64,
    pub(crate) entropy: Chance,
}

impl Host {
    pub(crate) fn new(machine: Machine, entropy: Chance, clock_base: u64, skew_ppm: i64) -> Self {
        Host {
            machine,
            alive: true,
            incarnation: 0,
            frozen_until: 0,
            thawed_at: None,
            clock_base,
            skew_ppm,
            wall_offset: 1_000_000_000_000,
            runs: Vec::new(),
            actions: 0,
            crashed_once: false,
            partitioned_until: 0,
            tick_generation: 0,
            next_tick: 0,
            sent: Vec::new(),
            confirmed: 0,
            entropy,
        }
    }

    /// This host's boot clock at a moment of true time.
    pub(crate) fn clock(&self, at: u64) -> u64 {
        let drift = i128::from(at) * i128::from(self.skew_ppm) / 1_000_000;
        let now = i128::from(self.clock_base) + i128::from(at) + drift;
        u64::try_from(now).unwrap_or(0)
    }

    /// How long it takes in true time until this host's clock shows `until`.
    pub(crate) fn true_time_until(&self, at: u64, until: BootInstant) -> u64 {
        let local = until.as_nanos().saturating_sub(self.clock(at));
        // Rounded up, so that the clock does show it then.
        let scaled = u128::from(local) * 1_000_000 / u128::from((1_000_000 + self.skew_ppm).unsigned_abs());
        u64::try_from(scaled).unwrap_or(u64::MAX).saturating_add(1)
    }

    pub(crate) fn given(&mut self, at: u64) -> Given {
        let now = self.clock(at);
        Given {
            now: BootInstant::from_nanos(now),
            wall: now + self.wall_offset,
            owner: Uuid::from_u64_pair(self.entropy.next(), self.entropy.next()),
            jitter: self.entropy.jitter(),
        }
    }

    pub(crate) fn run_mut(&mut self, id: RunId) -> Option<&mut Run> {
        self.runs.iter_mut().find(|run| run.id == id)
    }

    /// Notes that a request leaves now.
    pub(crate) fn note_sent(&mut self, ticket: Ticket, at: u64) {
        let clock = self.clock(at);
        self.sent.push((ticket.number, clock));
    }

    /// When a request left, by this host's clock.
    pub(crate) fn sent_at(&self, ticket: Ticket) -> u64 {
        self.sent.iter().rev().find(|(number, _)| *number == ticket.number).map_or(0, |(_, clock)| *clock)
    }

    /// A new process remembers nothing.
    pub(crate) fn restart(&mut self, machine: Machine) {
        self.alive = true;
        self.incarnation += 1;
        self.machine = machine;
        self.runs.clear();
        self.sent.clear();
        self.thawed_at = None;
        self.frozen_until = 0;
        self.next_tick = u64::MAX;
    }

    pub(crate) fn is_frozen(&self, at: u64) -> bool {
        at < self.frozen_until
    }
}
