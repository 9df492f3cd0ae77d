//! What has been counted, as it is handed out: families of points, named and labelled by OpenTelemetry's messaging
//! conventions where these have a name for it.

use std::sync::atomic::Ordering;

use super::SYSTEM;
#[cfg(feature = "prometheus")]
use super::meter::{BOUNDS, Durations};
use super::meter::{Failure, Meter};
use crate::message::{Endpoint, Target};

/// Numbers of one meaning.
pub(crate) struct Family {
    pub(crate) kind: &'static Kind,
    pub(crate) points: Vec<Point>,
}

/// What the numbers of a family mean.
pub(crate) struct Kind {
    /// As OpenTelemetry writes it.
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) about: &'static str,
    pub(crate) shape: Shape,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Only grows.
    Counter,
    /// As it is now.
    Gauge,
    /// In seconds.
    Histogram,
}

/// One number, of what its labels say.
pub(crate) struct Point {
    pub(crate) labels: Labels,
    pub(crate) value: Value,
}

pub(crate) enum Value {
    Count(u64),
    Level(f64),
    /// How many there are below each bound, those below the bound before included, and in all; and their sum.
    #[cfg(feature = "prometheus")]
    Distribution([u64; BOUNDS.len() + 1], f64),
}

/// Names and values, as OpenTelemetry writes them.
#[derive(Clone)]
pub(crate) struct Labels(pub(crate) Vec<(&'static str, String)>);

impl Labels {
    pub(crate) const fn none() -> Self {
        Labels(Vec::new())
    }

    /// Of what is sent there.
    pub(crate) fn of_target(transport: &str, target: &Target) -> Self {
        let (Target::Queue(name) | Target::Topic(name)) = target;
        Labels::of(transport, name.as_str())
    }

    /// Of what is read there.
    pub(crate) fn of_endpoint(transport: &str, endpoint: &Endpoint) -> Self {
        match endpoint {
            Endpoint::Queue(name) => Labels::of(transport, name.as_str()),
            Endpoint::Subscription { topic, subscription } => Labels::of(transport, topic.as_str())
                .and("messaging.destination.subscription.name", subscription.as_str()),
        }
    }

    fn of(transport: &str, destination: &str) -> Self {
        Labels::none()
            .and("messaging.system", SYSTEM)
            .and("messaging.destination.name", destination)
            .and("bus.transport", transport)
    }

    /// And of the operation that it is about.
    pub(crate) fn operation(self, operation: Operation) -> Self {
        self.and("messaging.operation.name", operation.as_str())
            .and("messaging.operation.type", operation.as_str())
    }

    pub(crate) fn and(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.push((name, value.into()));
        self
    }

    fn outcome(&self, failure: Option<Failure>) -> Self {
        match failure {
            None => self.clone(),
            Some(failure) => self.clone().and("error.type", failure.to_string()),
        }
    }
}

/// What is done with messages.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Send,
    Process,
    Settle,
}

impl Operation {
    const fn as_str(self) -> &'static str {
        match self {
            Operation::Send => "send",
            Operation::Process => "process",
            Operation::Settle => "settle",
        }
    }
}

pub(crate) static SENT: Kind = Kind {
    name: "messaging.client.sent.messages",
    unit: "{message}",
    about: "Messages that the store was asked to take, by what it answered",
    shape: Shape::Counter,
};

pub(crate) static CONSUMED: Kind = Kind {
    name: "messaging.client.consumed.messages",
    unit: "{message}",
    about: "Runs that have begun: each delivery of a message to its processor",
    shape: Shape::Counter,
};

pub(crate) static OPERATION: Kind = Kind {
    name: "messaging.client.operation.duration",
    unit: "s",
    about: "How long the store took to take messages, or verdicts",
    shape: Shape::Histogram,
};

pub(crate) static PROCESS: Kind = Kind {
    name: "messaging.process.duration",
    unit: "s",
    about: "How long runs took, middleware included",
    shape: Shape::Histogram,
};

pub(crate) static RETRIES: Kind = Kind {
    name: "bus.retries",
    unit: "{message}",
    about: "Attempts that have failed, and will be made again",
    shape: Shape::Counter,
};

pub(crate) static DEAD_LETTERS: Kind = Kind {
    name: "bus.dead_letters",
    unit: "{message}",
    about: "Messages that this host has given up on; the store may give up on others by itself",
    shape: Shape::Counter,
};

/// All that a meter has counted. What takes time is among it only for Prometheus: OpenTelemetry is told at once.
pub(crate) fn counted(meter: &Meter) -> Vec<Family> {
    let (mut sent, mut consumed) = (Family::of(&SENT), Family::of(&CONSUMED));
    let (mut retries, mut dead) = (Family::of(&RETRIES), Family::of(&DEAD_LETTERS));
    #[cfg(feature = "prometheus")]
    let (mut operations, mut processes) = (Family::of(&OPERATION), Family::of(&PROCESS));
    meter.each_sends(|transport, target, sends| {
        let labels = Labels::of_target(transport, target).operation(Operation::Send);
        sends.messages.each(|failure, count| sent.add(labels.outcome(failure), Value::Count(count)));
        #[cfg(feature = "prometheus")]
        operations.add_durations(&labels, &sends.durations);
    });
    meter.each_runs(|transport, endpoint, runs| {
        let plain = Labels::of_endpoint(transport, endpoint);
        let labels = plain.clone().operation(Operation::Process);
        consumed.add(labels.clone(), Value::Count(runs.begun.load(Ordering::Relaxed)));
        retries.add(plain.clone(), Value::Count(runs.retried.load(Ordering::Relaxed)));
        dead.add(plain.clone(), Value::Count(runs.dead.load(Ordering::Relaxed)));
        #[cfg(feature = "prometheus")]
        {
            processes.add_durations(&labels, &runs.durations);
            operations.add_durations(&plain.operation(Operation::Settle), &runs.settling);
        }
    });
    vec![
        sent,
        consumed,
        #[cfg(feature = "prometheus")]
        operations,
        #[cfg(feature = "prometheus")]
        processes,
        retries,
        dead,
    ]
}

impl Family {
    pub(crate) fn of(kind: &'static Kind) -> Self {
        Family { kind, points: Vec::new() }
    }

    pub(crate) fn add(&mut self, labels: Labels, value: Value) {
        self.points.push(Point { labels, value });
    }

    #[cfg(feature = "prometheus")]
    fn add_durations(&mut self, labels: &Labels, durations: &Durations) {
        durations.each(|failure, histogram| {
            let (mut counts, sum) = histogram.read();
            for bucket in 1..counts.len() {
                counts[bucket] += counts[bucket - 1];
            }
            self.add(labels.outcome(failure), Value::Distribution(counts, sum));
        });
    }
}
