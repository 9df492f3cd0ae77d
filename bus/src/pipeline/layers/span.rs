//! A span around each run, with fields named by OpenTelemetry's messaging conventions.

use std::future::Future;

use tracing::field::{Empty, display};
use tracing::{Instrument, Span};

use crate::message::{Delivery, Endpoint, TraceContext, TraceParent, Verdict};
use crate::telemetry::{Failure, SYSTEM};

/// The span of one run; disabled, and then free, when nobody listens.
///
/// It is nobody's child in this process: with OpenTelemetry, whoever sent the message is its parent, or linked to it.
pub fn of(endpoint: &Endpoint, delivery: &Delivery) -> Span {
    let (destination, subscription) = match endpoint {
        Endpoint::Queue(queue) => (queue, None),
        Endpoint::Subscription { topic, subscription } => (topic, Some(subscription)),
    };
    let span = tracing::info_span!(
        target: "bus::pipeline",
        parent: None,
        "process",
        otel.name = %format_args!("process {endpoint}"),
        otel.kind = "consumer",
        otel.status_code = Empty,
        messaging.system = SYSTEM,
        messaging.operation.name = "process",
        messaging.operation.type = "process",
        messaging.destination.name = %destination,
        messaging.destination.subscription.name = subscription.map(display),
        messaging.message.id = %delivery.envelope.id,
        messaging.message.body.size = delivery.envelope.body.len(),
        bus.message_type = %delivery.envelope.message_type,
        bus.delivery_count = delivery.delivery_count,
        bus.failures = delivery.failures,
        trace_id = Empty,
        bus.linked_trace_id = Empty,
        bus.verdict = Empty,
        error.type = Empty,
    );
    if !span.is_disabled() {
        begin(&span, delivery);
    }
    span
}

/// Begins it where the message was sent.
fn begin(span: &Span, delivery: &Delivery) {
    let (remote, is_continued) = (TraceContext::of(&delivery.envelope.headers), delivery.continues_trace());
    let hex = |parent: TraceParent| format!("{:032x}", parent.trace_id());
    #[cfg(feature = "opentelemetry")]
    let active = {
        crate::telemetry::propagation::begin(span, &remote, is_continued);
        crate::telemetry::propagation::of(span).and_then(|context| context.parent)
    };
    #[cfg(not(feature = "opentelemetry"))]
    let active = None;
    if let Some(own) = active.or(remote.parent.filter(|_| is_continued)) {
        span.record("trace_id", hex(own));
    }
    if let Some(linked) = remote.parent.filter(|_| !is_continued) {
        span.record("bus.linked_trace_id", hex(linked));
    }
}

/// Runs `run` in `span`.
pub async fn within<F: Future>(span: Span, run: F) -> F::Output {
    if span.is_disabled() { run.await } else { run.instrument(span).await }
}

/// Notes what the run has come to: the kind of an error, not its text, which may say what nobody is to see.
pub fn ended(span: &Span, verdict: &Verdict) {
    if span.is_disabled() {
        return;
    }
    span.record("bus.verdict", verdict.as_str());
    if let Some(failure) = Failure::of(verdict).filter(|failure| *failure != Failure::Released) {
        span.record("error.type", display(failure));
        span.record("otel.status_code", "ERROR");
    }
}
