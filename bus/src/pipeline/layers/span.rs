//! A span around each run, with fields named by OpenTelemetry's messaging conventions.

use std::future::Future;

use tracing::Instrument;
use tracing::Span;

use crate::message::{Delivery, Endpoint};

/// The span of one run; disabled, and then free, when nobody listens.
pub fn of(endpoint: &Endpoint, delivery: &Delivery) -> Span {
    tracing::info_span!(
        target: "bus::pipeline",
        "process",
        otel.kind = "consumer",
        messaging.operation.name = "process",
        messaging.destination.name = %endpoint,
        messaging.message.id = %delivery.envelope.id,
        messaging.message.body.size = delivery.envelope.body.len(),
        delivery_count = delivery.delivery_count,
    )
}

/// Runs `run` in `span`.
pub async fn within<F: Future>(span: Span, run: F) -> F::Output {
    if span.is_disabled() { run.await } else { run.instrument(span).await }
}
