//! A span around each send, with fields named by OpenTelemetry's messaging conventions. Its context is what the message
//! carries on.

use std::future::Future;

use tracing::field::{Empty, debug, display};
use tracing::{Instrument, Span};

use super::Dispatch;
use crate::error::{Error, Result};
use crate::message::{MessageId, Target};
use crate::telemetry::SYSTEM;

/// The span of one call; disabled, and then free, when nobody listens.
pub(super) fn of(dispatch: &Dispatch<'_>) -> Span {
    let (operation, destination) = match &dispatch.target {
        Ok(Target::Queue(queue)) => ("send", queue.as_str()),
        Ok(Target::Topic(topic)) => ("publish", topic.as_str()),
        // The call fails with just that.
        Err(_) => return Span::none(),
    };
    tracing::info_span!(
        target: "bus::sender",
        "send",
        otel.name = %format_args!("{operation} {destination}"),
        otel.kind = "producer",
        otel.status_code = Empty,
        messaging.system = SYSTEM,
        messaging.operation.name = operation,
        messaging.operation.type = "send",
        messaging.destination.name = destination,
        messaging.message.id = Empty,
        messaging.message.body.size = dispatch.body.as_ref().ok().map(|body| body.len()),
        messaging.batch.message_count = Empty,
        bus.transport = dispatch.transport,
        bus.message_type = dispatch.message_type,
        error.type = Empty,
    )
}

/// The span of a call that sends all of these, which are of one type; none if there are none.
pub(super) fn of_all(dispatches: &[Dispatch<'_>]) -> Span {
    let span = dispatches.first().map_or_else(Span::none, of);
    span.record("messaging.batch.message_count", dispatches.len());
    span
}

/// Notes which message it is.
pub(super) fn sends(span: &Span, id: MessageId) {
    span.record("messaging.message.id", display(id));
}

/// Runs `call` in `span`, and notes the kind of its error.
pub(super) async fn within<T>(span: &Span, call: impl Future<Output = Result<T>>) -> Result<T> {
    if span.is_disabled() {
        return call.await;
    }
    let outcome = call.instrument(span.clone()).await;
    if let Err(error) = &outcome {
        failed(span, error);
    }
    outcome
}

/// Notes that one of the messages could not be sent.
pub(super) fn failed(span: &Span, error: &Error) {
    span.record("error.type", debug(error.kind()));
    span.record("otel.status_code", "ERROR");
}
