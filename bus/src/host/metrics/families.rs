//! All numbers of a host.

use super::super::health::{Health, LockState, ProcessorHealth};
use crate::telemetry::Meter;
use crate::telemetry::family::{self, Family, Kind, Labels, Shape, Value};

static READY: Kind =
    gauge("bus.host.ready", "1", "1 while everything has been started and no store is waited for, else 0");
static GREEN: Kind = gauge("bus.processor.green", "1", "1 while the processor consumes or stands by, else 0");
static IN_FLIGHT: Kind = gauge("bus.in_flight", "{message}", "Runs that are under way in this host");
static WAITING: Kind = gauge(
    "bus.messages",
    "{message}",
    "Messages in the store, of all hosts together, by their state, as last seen",
);
static LOCK_STATE: Kind =
    gauge("bus.lock.state", "1", "1 for where this host stands towards the lock of a singleton, else 0");
static LOCK_FENCE: Kind = gauge("bus.lock.fence", "1", "The fence of the term that this host has");

/// The kinds of numbers that say what a host is at.
#[cfg(feature = "opentelemetry")]
pub(super) static LEVELS: [&Kind; 6] = [&READY, &GREEN, &IN_FLIGHT, &WAITING, &LOCK_STATE, &LOCK_FENCE];

const fn gauge(name: &'static str, unit: &'static str, about: &'static str) -> Kind {
    Kind { name, unit, about, shape: Shape::Gauge }
}

/// Where a host may stand towards a lock.
const STATES: [LockState; 6] = [
    LockState::Standby,
    LockState::Winning,
    LockState::Held,
    LockState::Doubtful,
    LockState::Lost,
    LockState::Released,
];

/// What was counted, and what the host is at.
pub(in super::super) fn of(meter: &Meter, health: &Health) -> Vec<Family> {
    let mut families = family::counted(meter);
    let mut ready = Family::of(&READY);
    ready.add(Labels::none(), level(health.is_ready()));
    let mut levels = [&GREEN, &IN_FLIGHT, &WAITING, &LOCK_STATE, &LOCK_FENCE].map(Family::of);
    for processor in &health.processors {
        add(&mut levels, processor);
    }
    families.push(ready);
    families.extend(levels);
    families
}

fn add([green, in_flight, waiting, lock_state, lock_fence]: &mut [Family; 5], processor: &ProcessorHealth) {
    let labels = Labels::of_endpoint(processor.transport, &processor.endpoint);
    green.add(labels.clone(), level(processor.trouble.is_none()));
    in_flight.add(labels.clone(), Value::Level(processor.in_flight as f64));
    if let Some(seen) = processor.depth {
        let depth = seen.depth;
        let all = [("ready", depth.ready), ("in-flight", depth.in_flight), ("delayed", depth.delayed)];
        // Where the store cannot tell them apart, all of these count as the first.
        let alive = if seen.is_rough { &[("not-dead", depth.ready)][..] } else { &all };
        for (state, messages) in alive.iter().chain(&[("dead", depth.dead)]) {
            waiting.add(labels.clone().and("bus.state", *state), Value::Level(*messages as f64));
        }
    }
    if let Some(lock) = processor.lock {
        for state in STATES {
            lock_state.add(labels.clone().and("bus.state", state.as_str()), level(lock.state == state));
        }
        if let Some(fence) = lock.fence {
            lock_fence.add(labels, Value::Level(fence.get() as f64));
        }
    }
}

fn level(is_so: bool) -> Value {
    Value::Level(if is_so { 1.0 } else { 0.0 })
}
