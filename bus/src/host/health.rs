#![doc = include_str!("../../docs/health.md")]

mod depths;
mod judge;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::board::Board;
use super::stores::Stores;
use crate::clock::Clock;
use crate::contract::{Depth, Fence};
use crate::error::ErrorKind;
use crate::message::Endpoint;
use crate::pump::{PumpView, Throttle};
use crate::telemetry::Meter;

pub(super) use depths::Depths;

/// How late an answer of the store may be, beyond the moment at which it was to be asked at the latest, before that is told
/// as a trouble.
pub const SLACK: Duration = Duration::from_secs(10);

/// What a host is at, and whether it really consumes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// Where in its life it is.
    pub phase: Phase,
    /// The stores that were not there when it started and have not come since; see
    /// [`HostHandle::waiting_for`](super::HostHandle::waiting_for).
    pub waiting_for: Vec<String>,
    /// Its processors, by transport and endpoint.
    pub processors: Vec<ProcessorHealth>,
}

/// Where in its life a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Not everything has been started.
    Starting,
    /// Everything has been started, and nobody has asked it to stop.
    Running,
    /// It was asked to stop, or comes to its end by itself.
    Stopping,
}

/// What one processor is at.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessorHealth {
    /// The function's name.
    pub name: &'static str,
    /// What it reads.
    pub endpoint: Endpoint,
    /// From where.
    pub transport: &'static str,
    /// Why it does not consume as it should, in a sentence; `None` if all is well.
    pub trouble: Option<String>,
    /// How long ago the store last answered a claim, be it with nothing. `None` if it never has: a singleton that stands
    /// by does not ask.
    pub last_fetch: Option<Duration>,
    /// How many calls in a row the store has not answered as it should.
    pub failed_calls: u32,
    /// What kind of error the last of them was.
    pub last_error: Option<ErrorKind>,
    /// How many runs in a row have failed, whatever becomes of their messages. That is told, and no trouble: one message
    /// that nobody can process may be the reason.
    pub failed_runs: u32,
    /// How many runs are under way.
    pub in_flight: usize,
    /// How much was where, where the store can tell and has been asked.
    pub depth: Option<DepthSeen>,
    /// A singleton's lock.
    pub lock: Option<LockHealth>,
}

/// A depth as it was some time ago: a store is asked at most every 5 s, however often somebody wants to know.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DepthSeen {
    /// What the store said.
    pub depth: Depth,
    /// How long ago.
    pub age: Duration,
    /// Whether all that is not dead counts as ready: see
    /// [`Capabilities::rough_depth`](crate::contract::Capabilities::rough_depth).
    pub is_rough: bool,
    /// How long before that the first message that was available had been sent; `None` if none was, or the store could
    /// not tell.
    pub oldest: Option<Duration>,
}

/// What a singleton's lock is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockHealth {
    /// Where this host stands.
    pub state: LockState,
    /// The fence of its term, while it has one.
    pub fence: Option<Fence>,
    /// How long ago the lock's store gave a definite answer.
    pub last_answer: Option<Duration>,
}

/// Where a host stands towards a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockState {
    /// Another one holds it, or its store has not been heard of yet.
    Standby,
    /// It is being won: asked for, or held and its term being prepared.
    Winning,
    /// The term is on.
    Held,
    /// The term is on and takes nothing in, since nobody has confirmed it for half of a lease.
    Doubtful,
    /// The term is over, and its last run has not ended.
    Lost,
    /// It is being given back, or has been.
    Released,
}

impl Health {
    /// Whether everything is as it should be: the host runs, no store is waited for, and each processor consumes, or is a
    /// singleton that stands by.
    pub fn is_green(&self) -> bool {
        self.is_ready() && self.processors.iter().all(|processor| processor.trouble.is_none())
    }

    /// Whether the host runs, and waits for no store. A store that goes away later does not change it.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Running && self.waiting_for.is_empty()
    }

    /// As `/health` shows it.
    pub fn to_json(&self) -> Value {
        json!({
            "status": if self.is_green() { "green" } else { "red" },
            "phase": match self.phase {
                Phase::Starting => "starting",
                Phase::Running => "running",
                Phase::Stopping => "stopping",
            },
            "waiting_for": self.waiting_for,
            "processors": self.processors.iter().map(ProcessorHealth::to_json).collect::<Vec<_>>(),
        })
    }
}

impl ProcessorHealth {
    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "endpoint": self.endpoint.to_string(),
            "transport": self.transport,
            "status": if self.trouble.is_none() { "green" } else { "red" },
            "trouble": self.trouble,
            "last_fetch_seconds_ago": self.last_fetch.map(seconds),
            "failed_calls": self.failed_calls,
            "last_error": self.last_error.map(|kind| format!("{kind:?}")),
            "failed_runs": self.failed_runs,
            "in_flight": self.in_flight,
            "depth": self.depth.map(|seen| json!({
                "ready": seen.depth.ready,
                "in_flight": seen.depth.in_flight,
                "delayed": seen.depth.delayed,
                "dead": seen.depth.dead,
                "oldest_waiting_seconds": seen.oldest.map(seconds),
                "seconds_ago": seconds(seen.age),
                "rough": seen.is_rough,
            })),
            "lock": self.lock.map(|lock| json!({
                "state": lock.state.as_str(),
                "fence": lock.fence.map(Fence::get),
                "last_answer_seconds_ago": lock.last_answer.map(seconds),
            })),
        })
    }
}

impl LockState {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            LockState::Standby => "standby",
            LockState::Winning => "winning",
            LockState::Held => "held",
            LockState::Doubtful => "doubtful",
            LockState::Lost => "lost",
            LockState::Released => "released",
        }
    }
}

/// In seconds, with milliseconds.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

/// Sees all that a host's health is judged by.
pub(super) struct Monitor {
    pub(super) stores: Arc<Stores>,
    pub(super) board: Board,
    pub(super) depths: Arc<Depths>,
    pub(super) clock: Clock,
    pub(super) throttle: Throttle,
    /// Fires at the very beginning of the host's end.
    pub(super) stopping: CancellationToken,
    pub(super) started: AtomicBool,
    pub(super) meter: Meter,
}

impl Monitor {
    /// Everything has been started.
    pub(super) fn has_started(&self) {
        self.started.store(true, Ordering::Release);
    }

    fn phase(&self) -> Phase {
        match self.started.load(Ordering::Acquire) {
            _ if self.stopping.is_cancelled() => Phase::Stopping,
            true => Phase::Running,
            false => Phase::Starting,
        }
    }

    /// All numbers.
    #[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
    pub(super) fn families(&self) -> Vec<crate::telemetry::family::Family> {
        super::metrics::families::of(&self.meter, &self.health())
    }

    /// All numbers, as Prometheus reads them.
    #[cfg(feature = "prometheus")]
    pub(super) fn metrics(&self) -> String {
        crate::telemetry::exposition::write(&self.families())
    }

    /// What everything is at. Asks nobody, and waits for nothing.
    pub(super) fn health(&self) -> Health {
        self.depths.want();
        let now = self.clock.now();
        let posts = self.board.posts();
        let stuck = posts.iter().filter_map(|post| post.pump.as_ref()).map(PumpView::stuck).sum::<usize>();
        let has_permits = self.throttle.permits().is_none_or(|permits| stuck < permits);
        let processor = |post| judge::processor(post, (&self.stores, &self.depths), has_permits, now);
        Health {
            phase: self.phase(),
            waiting_for: self.stores.missing(),
            processors: posts.iter().map(processor).collect(),
        }
    }
}
