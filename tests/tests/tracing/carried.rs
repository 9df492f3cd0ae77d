//! What travels among the headers beside the parent, and what is wrong there.

use std::str::FromStr;

use bus::message::{TraceContext, TraceParent};
use bus::prelude::*;
use bus::testing::Durations;
use opentelemetry::baggage::BaggageExt;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry::{Context, KeyValue};
use tracing::Instrument;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::handlers::{Seen, Todo, Work};
use super::spans::Recorder;
use super::{host, work_endpoint};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const STATE: &str = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";
const BAGGAGE: &str = "tenant=acme,user=a%20b;ttl=3";

fn trace(headers: &Headers) -> String {
    headers.get(Headers::TRACEPARENT).expect("a parent").split('-').nth(1).expect("a trace").to_owned()
}

/// From a message that somebody else has sent, over an event, to all who read it: with a subscriber and without.
#[bus::test]
async fn state_and_baggage_survive_each_hop() {
    for traced in [false, true] {
        let spans = traced.then(Recorder::start);
        let seen = Seen::default();
        let host = host(&seen).await;
        let sent = host.bus().send(Work::to(Todo::Publish));
        let sent = sent.header(Headers::TRACEPARENT, PARENT).header(Headers::TRACESTATE, STATE);
        sent.header(Headers::BAGGAGE, BAGGAGE).await.expect("sent");
        host.settled().await;
        for at in ["work", "one", "two"] {
            let headers = &seen.at(at)[0];
            assert_eq!(trace(headers), trace(&seen.at("work")[0]), "{at}, {traced}");
            assert_eq!(headers.get(Headers::TRACESTATE), Some(STATE), "{at}, {traced}");
            assert_eq!(headers.get(Headers::BAGGAGE), Some(BAGGAGE), "{at}, {traced}");
        }
        if let Some(spans) = spans {
            let (send, run) = (spans.only("send work"), spans.only("process work"));
            assert_ne!(send.trace(), run.trace(), "what its sender has set goes before");
            assert_eq!(send.0.links.links[0].span_context.trace_id(), run.trace());
            assert_eq!(run.trace(), TraceId::from_hex(&PARENT[3..35]).expect("an id"));
            assert_eq!(run.0.parent_span_id, SpanId::from_hex(&PARENT[36..52]).expect("an id"));
            assert_eq!(run.0.span_context.trace_state().header(), STATE);
        }
    }
}

/// They survive a retry and a dead letter that is put back, too: baggage is no matter of traces.
#[bus::test]
async fn baggage_survives_retries_and_the_dead_letters() {
    let spans = Recorder::start();
    let seen = Seen::default();
    let host = host(&seen).await;
    for todo in [Todo::Fail { times: 1, seconds: 7200 }, Todo::DeadLetter] {
        host.bus().send(Work::to(todo)).header(Headers::BAGGAGE, BAGGAGE).await.expect("sent");
    }
    host.advance(3.hours()).await;
    let dead = host.inspect("default").dead_letters(&work_endpoint(), None, 9).await.expect("answered");
    host.inspect("default").put_back(&work_endpoint(), &[dead[0].envelope.id]).await.expect("answered");
    host.settled().await;
    assert_eq!(spans.named("process work").len(), 4);
    let all = [seen.at("work"), seen.at("aftermath")].concat();
    assert_eq!(all.len(), 6);
    assert!(all.iter().all(|headers| headers.get(Headers::BAGGAGE) == Some(BAGGAGE)), "{all:?}");
}

/// Without a subscriber, too: what is put back continues nothing, and what follows from it is one trace again.
#[bus::test]
async fn what_follows_from_a_dead_letter_that_was_put_back_is_a_trace_of_its_own() {
    let seen = Seen::default();
    let host = host(&seen).await;
    let sent = host.bus().send(Work::to(Todo::DeadLetter)).header(Headers::TRACEPARENT, PARENT);
    let id = sent.header(Headers::BAGGAGE, BAGGAGE).await.expect("sent").id();
    host.settled().await;
    host.inspect("default").put_back(&work_endpoint(), &[id]).await.expect("answered");
    host.settled().await;
    let aftermath = seen.at("aftermath");
    assert_eq!(trace(&aftermath[0]), PARENT[3..35]);
    assert_ne!(trace(&aftermath[1]), PARENT[3..35]);
    assert_eq!(aftermath[1].get(Headers::BAGGAGE), Some(BAGGAGE));
    assert_eq!(seen.at("work")[1].get(Headers::PUT_BACK), Some("1"));
}

/// Whoever answers a request, say, and has its context in a span: the message is a child of that, and has its baggage.
#[bus::test]
async fn a_foreign_span_is_continued_with_its_state_and_baggage() {
    let spans = Recorder::start();
    let seen = Seen::default();
    let host = host(&seen).await;
    let remote = SpanContext::new(
        TraceId::from(7),
        SpanId::from(9),
        TraceFlags::SAMPLED,
        true,
        TraceState::from_str(STATE).expect("a state"),
    );
    let context = Context::new().with_remote_span_context(remote);
    let context = context.with_baggage([KeyValue::new("tenant", "acme, inc."), KeyValue::new("a", "1")]);
    let request = tracing::info_span!("request");
    request.set_parent(context).expect("it has not begun");
    host.bus().send(Work::to(Todo::Publish)).into_future().instrument(request).await.expect("sent");
    host.settled().await;
    let (request, run) = (spans.only("request"), spans.only("process happened/one"));
    assert_eq!((request.trace(), run.trace()), (TraceId::from(7), TraceId::from(7)));
    assert!(spans.only("send work").is_child_of(&request));
    for at in ["work", "one"] {
        let headers = &seen.at(at)[0];
        assert_eq!(headers.get(Headers::TRACESTATE), Some(STATE), "{at}");
        assert_eq!(headers.get(Headers::BAGGAGE), Some("a=1,tenant=acme%2C%20inc."), "{at}");
    }
}

/// A span that is not sampled says so to all that follow.
#[bus::test]
async fn what_is_not_sampled_stays_so() {
    let spans = Recorder::start();
    let seen = Seen::default();
    let host = host(&seen).await;
    let unsampled = PARENT.replace("-01", "-00");
    host.bus().send(Work::to(Todo::Publish)).header(Headers::TRACEPARENT, &unsampled).await.expect("sent");
    host.settled().await;
    let parent = seen.at("one")[0].get(Headers::TRACEPARENT).and_then(TraceParent::parse).expect("a parent");
    assert_eq!((parent.flags() & 1, format!("{:032x}", parent.trace_id())), (0, PARENT[3..35].to_owned()));
    assert_eq!(spans.named("process happened/one").len(), 0);
}

/// Headers that are of no right format are as if they were not there.
#[bus::test]
async fn wrong_headers_are_ignored() {
    for traced in [false, true] {
        let spans = traced.then(Recorder::start);
        let seen = Seen::default();
        let host = host(&seen).await;
        let long = "x".repeat(20_000);
        for wrong in ["", "00", "ff-0-0-0", "\u{0}\n", "å=ä", &long] {
            let sent = host.bus().send(Work::to(Todo::Publish)).header(Headers::TRACEPARENT, wrong);
            let sent = sent.header(Headers::TRACESTATE, wrong).header(Headers::BAGGAGE, wrong);
            sent.await.expect("tracing fails no message");
            host.settled().await;
        }
        assert_eq!(seen.at("one").len(), 6);
        for headers in [seen.at("work"), seen.at("one")].concat() {
            let context = TraceContext::of(&headers);
            assert!(context.parent.is_some(), "{headers:?}");
            assert_eq!((headers.get(Headers::TRACESTATE), headers.get(Headers::BAGGAGE)), (None, None));
        }
        if let Some(spans) = spans {
            assert_eq!(spans.named("process work").len(), 6);
        }
    }
}

/// Nor does what tracing adds make a message too large.
#[bus::test]
async fn baggage_is_left_out_where_there_is_no_room_for_it() {
    let seen = Seen::default();
    let host = host(&seen).await;
    let full = "x".repeat(Headers::MAX_BYTES - 100);
    let span = Recorder::start();
    let context = Context::new()
        .with_remote_span_context(SpanContext::new(
            TraceId::from(7),
            SpanId::from(9),
            TraceFlags::SAMPLED,
            true,
            TraceState::NONE,
        ))
        .with_baggage([KeyValue::new("long", "x".repeat(500))]);
    let request = tracing::info_span!("request");
    request.set_parent(context).expect("it has not begun");
    let sent = host.bus().send(Work::to(Todo::Nothing)).header("own", full).into_future();
    sent.instrument(request).await.expect("sent");
    host.settled().await;
    let headers = &seen.at("work")[0];
    assert_eq!(headers.get(Headers::BAGGAGE), None);
    assert_eq!(trace(headers), format!("{:032x}", 7));
    drop(span);
}
