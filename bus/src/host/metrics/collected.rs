//! Has OpenTelemetry collect the numbers, for as long as there is somebody to have them.

use std::sync::{Arc, Weak};

use super::super::health::Monitor;
use super::Measuring;
use super::families::LEVELS;
use crate::telemetry::Meter;
use crate::telemetry::family::{self, Kind};
use crate::telemetry::instruments::{self, Instruments};

/// The kinds of numbers that only grow.
static COUNTED: [&Kind; 4] = [&family::SENT, &family::CONSUMED, &family::RETRIES, &family::DEAD_LETTERS];

impl Measuring {
    /// What a host counts with: durations are handed on from there.
    pub(in super::super) fn meter(&self) -> Meter {
        Meter::over(Instruments::of(&self.opentelemetry()))
    }

    /// Has all other numbers of a host collected.
    pub(in super::super) fn observe(&self, monitor: &Arc<Monitor>) {
        let monitor = Arc::downgrade(monitor);
        let kinds: Vec<&'static Kind> = COUNTED.iter().chain(&LEVELS).copied().collect();
        instruments::observe(&self.opentelemetry(), &kinds, move || {
            Weak::upgrade(&monitor).map(|monitor| monitor.families()).unwrap_or_default()
        });
    }

    /// The same for a program that only sends.
    pub(in super::super) fn observe_sends(&self, meter: &Meter) {
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
