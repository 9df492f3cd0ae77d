//! The numbers of a host: what its meter has counted, and what it is at, for OpenTelemetry and for Prometheus.

#[cfg(feature = "opentelemetry")]
use std::sync::{Arc, Weak};

#[cfg(feature = "opentelemetry")]
use opentelemetry::metrics::MeterProvider;

#[cfg(feature = "opentelemetry")]
use super::health::Monitor;
#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
use super::health::{Health, LockState, ProcessorHealth};
use crate::telemetry::Meter;
#[cfg(feature = "prometheus")]
use crate::telemetry::exposition;
#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
use crate::telemetry::family::{self, Family, Kind, Labels, Shape, Value};
#[cfg(feature = "opentelemetry")]
use crate::telemetry::instruments::{self, Instruments};

/// To whom the numbers are handed beside those who ask for them.
#[derive(Clone, Default)]
pub(super) struct Measuring {
    /// By default the global one.
    #[cfg(feature = "opentelemetry")]
    pub(super) provider: Option<Arc<dyn MeterProvider + Send + Sync>>,
}

impl Measuring {
    /// What a host counts with.
    #[cfg(not(feature = "opentelemetry"))]
    pub(super) fn meter(&self) -> Meter {
        Meter::default()
    }
}

#[cfg(feature = "opentelemetry")]
impl Measuring {
    /// What a host counts with: durations are handed on from there.
    pub(super) fn meter(&self) -> Meter {
        Meter::over(Instruments::of(&self.opentelemetry()))
    }

    /// Has all other numbers of a host collected, for as long as it is there.
    pub(super) fn observe(&self, monitor: &Arc<Monitor>) {
        let monitor = Arc::downgrade(monitor);
        let kinds: Vec<&'static Kind> = COUNTED.iter().chain(&LEVELS).copied().collect();
        instruments::observe(&self.opentelemetry(), &kinds, move || {
            Weak::upgrade(&monitor).map(|monitor| monitor.families()).unwrap_or_default()
        });
    }

    /// The same for a program that only sends.
    pub(super) fn observe_sends(&self, meter: &Meter) {
        let meter = meter.weak();
        instruments::observe(&self.opentelemetry(), &[&family::SENT], move || {
            meter.upgrade().map(|meter| family::counted(&meter)).unwrap_or_default()
        });
    }

    fn opentelemetry(&self) -> opentelemetry::metrics::Meter {
        match &self.provider {
            Some(provider) => instruments::meter(&**provider),
            None => instruments::meter(&*opentelemetry::global::meter_provider()),
        }
    }
}

/// The kinds of numbers that only grow.
#[cfg(feature = "opentelemetry")]
static COUNTED: [&Kind; 4] = [&family::SENT, &family::CONSUMED, &family::RETRIES, &family::DEAD_LETTERS];

/// And those that say what a host is at.
#[cfg(feature = "opentelemetry")]
static LEVELS: [&Kind; 6] = [&READY, &GREEN, &IN_FLIGHT, &WAITING, &LOCK_STATE, &LOCK_FENCE];

#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
const fn gauge(name: &'static str, unit: &'static str, about: &'static str) -> Kind {
    Kind { name, unit, about, shape: Shape::Gauge }
}

#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
static READY: Kind =
    gauge("bus.host.ready", "1", "1 while everything has been started and no store is waited for, else 0");
#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
static GREEN: Kind = gauge("bus.processor.green", "1", "1 while the processor consumes or stands by, else 0");
#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
static IN_FLIGHT: Kind = gauge("bus.in_flight", "{message}", "Runs that are under way in this host");
#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
static WAITING: Kind = gauge(
    "bus.messages",
    "{message}",
    "Messages in the store, of all hosts together, by their state, as last seen",
);
#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
static LOCK_STATE: Kind =
    gauge("bus.lock.state", "1", "1 for where this host stands towards the lock of a singleton, else 0");
#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
static LOCK_FENCE: Kind = gauge("bus.lock.fence", "1", "The fence of the term that this host has");

/// All numbers of a host.
#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
pub(super) fn families(meter: &Meter, health: &Health) -> Vec<Family> {
    let mut families = family::counted(meter);
    let mut ready = Family::of(&READY);
    ready.add(Labels(Vec::new()), level(health.is_ready()));
    let mut levels = [&GREEN, &IN_FLIGHT, &WAITING, &LOCK_STATE, &LOCK_FENCE].map(Family::of);
    for processor in &health.processors {
        add_levels(&mut levels, processor);
    }
    families.push(ready);
    families.extend(levels);
    families
}

#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
fn add_levels(
    [green, in_flight, waiting, lock_state, lock_fence]: &mut [Family; 5],
    processor: &ProcessorHealth,
) {
    let labels = Labels::of_endpoint(processor.transport, &processor.endpoint);
    green.add(labels.clone(), level(processor.trouble.is_none()));
    in_flight.add(labels.clone(), Value::Level(processor.in_flight as f64));
    if let Some(seen) = processor.depth {
        let depth = seen.depth;
        let states = [("in-flight", depth.in_flight), ("delayed", depth.delayed), ("dead", depth.dead)];
        // Where the store cannot tell them apart, what is ready is told as what it is.
        let told = if seen.is_rough { &states[2..] } else { &states[..] };
        let ready = [(if seen.is_rough { "not-dead" } else { "ready" }, depth.ready)];
        for (state, messages) in ready.iter().chain(told) {
            waiting.add(labels.clone().and("bus.state", *state), Value::Level(*messages as f64));
        }
    }
    if let Some(lock) = processor.lock {
        for state in LockState::ALL {
            lock_state.add(labels.clone().and("bus.state", state.as_str()), level(lock.state == state));
        }
        if let Some(fence) = lock.fence {
            lock_fence.add(labels, Value::Level(fence.get() as f64));
        }
    }
}

#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
fn level(is_so: bool) -> Value {
    Value::Level(if is_so { 1.0 } else { 0.0 })
}

/// As Prometheus reads them.
#[cfg(feature = "prometheus")]
pub(super) fn text(meter: &Meter, health: &Health) -> String {
    exposition::write(&families(meter, health))
}
