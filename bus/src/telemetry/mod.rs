//! What can be seen of the bus from outside, beside its events: traces and numbers.
//!
//! * `meter`: the one place where sends, runs and verdicts are counted and timed: with atomics, whoever looks at them.
//! * `family`: what has been counted, as it is handed out.
//! * `instruments` (feature `opentelemetry`): hands it to OpenTelemetry.
//! * `exposition` (feature `prometheus`): writes it down as Prometheus reads it.
//! * `propagation` (feature `opentelemetry`): what travels with a message, and OpenTelemetry's context.
//!
//! The spans themselves are made where what they are about happens: [`layers::span`](crate::pipeline::layers::span) and
//! [`sender`](crate::sender). [`guide::tracing`](crate::guide::tracing) says what there is to be seen.

#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
pub(crate) mod family;
#[cfg(feature = "opentelemetry")]
pub(crate) mod instruments;
mod meter;
#[cfg(feature = "opentelemetry")]
pub(crate) mod propagation;

#[cfg(feature = "prometheus")]
pub(crate) mod exposition;

pub use meter::Runs;
pub(crate) use meter::{Failure, Meter, Sends};

/// The value of `messaging.system`: what is in a store is the bus's own, whoever keeps it.
pub(crate) const SYSTEM: &str = "bus";
