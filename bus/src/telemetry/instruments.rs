//! Hands what is counted to OpenTelemetry: durations as they come, all else when it is collected.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter, MeterProvider};

use super::family::{self, Family, Kind, Labels, Operation, Shape, Value};
use super::meter::{BOUNDS, Failure};
use super::propagation::attributes;
use crate::message::{Endpoint, Target};

/// What durations are told to. By default nobody.
#[derive(Default)]
pub(crate) struct Instruments(Option<Arc<Histograms>>);

struct Histograms {
    process: Histogram<f64>,
    operation: Histogram<f64>,
}

impl Instruments {
    /// Those of this meter.
    pub(crate) fn of(meter: &Meter) -> Self {
        let histogram = |kind: &'static Kind| {
            meter
                .f64_histogram(kind.name)
                .with_unit(kind.unit)
                .with_description(kind.about)
                .with_boundaries(BOUNDS.to_vec())
                .build()
        };
        Instruments(Some(Arc::new(Histograms {
            process: histogram(&family::PROCESS),
            operation: histogram(&family::OPERATION),
        })))
    }

    pub(super) fn of_sends(&self, transport: &str, target: &Target) -> Timed {
        let labels = Labels::of_target(transport, target).operation(Operation::Send);
        self.timed(|histograms| &histograms.operation, &labels)
    }

    pub(super) fn of_runs(&self, transport: &str, endpoint: &Endpoint) -> Timed {
        let labels = Labels::of_endpoint(transport, endpoint).operation(Operation::Process);
        self.timed(|histograms| &histograms.process, &labels)
    }

    pub(super) fn of_settling(&self, transport: &str, endpoint: &Endpoint) -> Timed {
        let labels = Labels::of_endpoint(transport, endpoint).operation(Operation::Settle);
        self.timed(|histograms| &histograms.operation, &labels)
    }

    fn timed(&self, which: impl Fn(&Histograms) -> &Histogram<f64>, labels: &Labels) -> Timed {
        let histogram = self.0.as_deref().map(|histograms| which(histograms).clone());
        Timed { histogram, attributes: attributes(labels) }
    }
}

/// What takes time, of one place.
#[derive(Default)]
pub(super) struct Timed {
    histogram: Option<Histogram<f64>>,
    attributes: Vec<KeyValue>,
}

impl Timed {
    pub(super) fn record(&self, took: Duration, failure: Option<Failure>) {
        let Some(histogram) = &self.histogram else { return };
        match failure {
            None => histogram.record(took.as_secs_f64(), &self.attributes),
            Some(failure) => {
                let mut attributes = self.attributes.clone();
                attributes.push(KeyValue::new("error.type", failure.to_string()));
                histogram.record(took.as_secs_f64(), &attributes);
            }
        }
    }
}

/// The meter of that provider by which the bus is known.
pub(crate) fn meter(provider: &dyn MeterProvider) -> Meter {
    let scope = opentelemetry::InstrumentationScope::builder("bus").with_version(env!("CARGO_PKG_VERSION"));
    provider.meter_with_scope(scope.build())
}

/// Has the numbers of these kinds collected from `families`, for as long as that answers.
pub(crate) fn observe<F>(meter: &Meter, kinds: &[&'static Kind], families: F)
where
    F: Fn() -> Vec<Family> + Send + Sync + 'static,
{
    let families = Arc::new(families);
    for kind in kinds {
        let (kind, families) = (*kind, Arc::clone(&families));
        let points = move || {
            families()
                .into_iter()
                .filter(|family| family.kind.name == kind.name)
                .flat_map(|family| family.points)
        };
        match kind.shape {
            Shape::Counter => {
                let counter = meter.u64_observable_counter(kind.name);
                let _ = counter
                    .with_unit(kind.unit)
                    .with_description(kind.about)
                    .with_callback(move |observer| {
                        for point in points() {
                            if let Value::Count(count) = point.value {
                                observer.observe(count, &attributes(&point.labels));
                            }
                        }
                    })
                    .build();
            }
            Shape::Gauge => {
                let gauge = meter.f64_observable_gauge(kind.name);
                let _ = gauge
                    .with_unit(kind.unit)
                    .with_description(kind.about)
                    .with_callback(move |observer| {
                        for point in points() {
                            if let Value::Level(level) = point.value {
                                observer.observe(level, &attributes(&point.labels));
                            }
                        }
                    })
                    .build();
            }
            // Told as they come.
            Shape::Histogram => {}
        }
    }
}
