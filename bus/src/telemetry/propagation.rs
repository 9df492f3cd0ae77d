//! Between what travels with a message and OpenTelemetry's context.
//!
//! Done here, and not by the propagator that a program may have set for its other traffic: what travels with messages is
//! W3C's, whatever that one writes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::str::FromStr;

use opentelemetry::baggage::{Baggage, BaggageExt};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry::{Context, KeyValue};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::message::{TraceContext, TraceParent};

/// Has `span` begin where `remote` was sent: as a child of its span, or in a trace of its own that is linked to it.
pub(crate) fn begin(span: &Span, remote: &TraceContext, is_continued: bool) {
    let parent = remote.parent.map(|parent| span_context(parent, remote.state.as_deref()));
    let mut context = Context::new();
    if let Some(baggage) = &remote.baggage {
        context = context.with_baggage(read_baggage(baggage));
    }
    if let Some(parent) = parent.clone().filter(|_| is_continued) {
        context = context.with_remote_span_context(parent);
    }
    // Without OpenTelemetry's layer among the subscriber's there is nobody to be told.
    let _ = span.set_parent(context);
    if let Some(linked) = parent.filter(|_| !is_continued) {
        span.add_link(linked);
    }
}

/// Links `span` to what a message that it sends carries already, given by its sender: whoever receives it is a child of
/// that.
pub(crate) fn link_to_own(span: &Span, own: &TraceContext) {
    if let Some(parent) = own.parent {
        span.add_link(span_context(parent, own.state.as_deref()));
    }
}

/// What is to travel with what is sent within `span`, or where it is disabled, within whatever is active; `None` if that is
/// no part of a trace.
pub(crate) fn within(span: &Span) -> Option<TraceContext> {
    of(span).or_else(|| of(&Span::current())).or_else(|| of_context(&Context::current()))
}

/// What is to travel with what is sent within `span`.
pub(crate) fn of(span: &Span) -> Option<TraceContext> {
    of_context(&span.context())
}

fn of_context(context: &Context) -> Option<TraceContext> {
    let span = context.span();
    let active = span.span_context();
    if !active.is_valid() {
        return None;
    }
    let state = Some(active.trace_state().header()).filter(|state| !state.is_empty());
    Some(TraceContext {
        parent: TraceParent::of(
            u128::from_be_bytes(active.trace_id().to_bytes()),
            u64::from_be_bytes(active.span_id().to_bytes()),
            active.trace_flags().to_u8(),
        ),
        state: state.map(Into::into),
        baggage: write_baggage(context.baggage()).map(Into::into),
    })
}

fn span_context(parent: TraceParent, state: Option<&str>) -> SpanContext {
    SpanContext::new(
        TraceId::from(parent.trace_id()),
        SpanId::from(parent.span_id()),
        TraceFlags::new(parent.flags()),
        true,
        state.and_then(|state| TraceState::from_str(state).ok()).unwrap_or_default(),
    )
}

fn read_baggage(header: &str) -> Vec<opentelemetry::baggage::KeyValueMetadata> {
    let member = |member: &str| {
        let (key, rest) = member.split_once('=')?;
        let (value, metadata) = rest.split_once(';').unwrap_or((rest, ""));
        let (key, value) = (key.trim().to_owned(), decoded(value.trim()));
        Some(opentelemetry::baggage::KeyValueMetadata::new(key, value, metadata.trim()))
    };
    header.split(',').filter_map(member).collect()
}

fn write_baggage(baggage: &Baggage) -> Option<String> {
    // Sorted, so that the same baggage is the same header.
    let sorted: BTreeMap<_, _> = baggage.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let members = sorted.into_iter().map(|(key, (value, metadata))| {
        let metadata = metadata.as_str();
        let separator = if metadata.is_empty() { "" } else { ";" };
        format!("{key}={}{separator}{metadata}", encoded(value.as_str()))
    });
    let header = members.collect::<Vec<_>>().join(",");
    (!header.is_empty()).then_some(header)
}

/// Percent-encoded, but for what may stand in a value of baggage.
fn encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'"' | b',' | b';' | b'\\' | b'%' | ..=b' ' | 0x7f.. => {
                // Writing to a text does not fail.
                let _ = write!(text, "%{byte:02X}");
            }
            plain => text.push(char::from(plain)),
        }
    }
    text
}

/// What is not properly percent-encoded stays as it is.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, after @ ..] = rest {
        let hex = (*first == b'%').then(|| after.get(..2)).flatten();
        let byte = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Attributes for a metric.
pub(crate) fn attributes(labels: &super::family::Labels) -> Vec<KeyValue> {
    labels.0.iter().map(|(name, value)| KeyValue::new(*name, value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baggage_is_read_and_written() {
        for header in ["a=1", "a=1,b=x%20y%2Cz%C3%A5;secret;ttl=3", "a=,b=%2525"] {
            let context = Context::new().with_baggage(read_baggage(header));
            assert_eq!(write_baggage(context.baggage()).as_deref(), Some(header));
        }
        let odd = Context::new().with_baggage(read_baggage("a=100%,b=%zz,c=%C3"));
        let values = ["a", "b", "c"].map(|key| odd.baggage().get(key).map(ToString::to_string));
        assert_eq!(values, ["100%", "%zz", "%C3"].map(|value| Some(value.to_owned())));
        assert_eq!(write_baggage(Context::new().baggage()), None);
    }
}
