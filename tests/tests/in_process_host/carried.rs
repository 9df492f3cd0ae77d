//! What travels with what a handler sends, and what ends with its message.

use std::sync::atomic::Ordering;

use bus::message::{Headers, TraceParent};

use super::handlers::{Answer, Census, Relay, ScopedNote, SingleRelay};
use super::{Embedded, Place, Seen};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The trace of a header: its second part.
fn trace(headers: &Headers) -> &str {
    let parent = headers.get(Headers::TRACEPARENT).expect("a trace context");
    assert!(TraceParent::parse(parent).is_some(), "{parent:?} is none");
    parent.split('-').nth(1).expect("it was parsed")
}

/// The two messages that a relay has sent, by the handler and by a service, and its own run.
async fn relayed(host: &mut Embedded) -> (Seen, Vec<Seen>) {
    let mut relayed = Vec::new();
    let mut own = None;
    for _ in 0..3 {
        let seen = host.seen().await;
        if seen.at == "relayed" { relayed.push(seen) } else { own = Some(seen) }
    }
    (own.expect("the relay itself"), relayed)
}

/// W3C trace context is carried on by whatever sends during the run, also by a handle that was made before it.
#[tokio::test]
async fn what_a_handler_sends_carries_its_trace_on() {
    for place in Place::each() {
        let mut host = place.host(&["relay", "relayed"]).start().await;
        let relay = host.handle.bus().send(Relay(String::new())).header(Headers::TRACEPARENT, PARENT);
        relay.await.expect("sent");
        let (own, both) = relayed(&mut host).await;
        assert_eq!(own.headers.get(Headers::TRACEPARENT), Some(PARENT), "the sender's own is kept");
        assert_eq!(both.len(), 2);
        for seen in both {
            assert_eq!(trace(&seen.headers), trace(&own.headers), "{}", seen.text);
            assert_ne!(
                seen.headers.get(Headers::TRACEPARENT),
                Some(PARENT),
                "{}: a span of its own",
                seen.text
            );
            assert_eq!(seen.headers.get(Headers::FENCE), None, "a plain processor has no fence");
        }
        host.stop().await;
    }
}

/// What is sent outside of any run begins a trace.
#[tokio::test]
async fn what_is_sent_outside_of_a_run_begins_a_trace() {
    let place = Place::memory();
    let mut host = place.host(&["relay", "relayed"]).start().await;
    host.handle.bus().send(Relay(String::new())).await.expect("sent");
    host.handle.bus().send(Relay(String::new())).await.expect("sent");
    let (mut traces, mut all) = (std::collections::BTreeSet::new(), 0);
    while all < 6 {
        traces.insert(trace(&host.seen().await.headers).to_owned());
        all += 1;
    }
    assert_eq!(traces.len(), 2, "one trace for each, with all that follows from it");
    host.stop().await;
}

/// §5.7: what a singleton sends says in which term, also by a handle that a service has.
#[tokio::test]
async fn what_a_singleton_sends_names_its_fence() {
    for place in Place::each() {
        let mut host = place.host(&["single-relay", "relayed"]).start().await;
        host.handle.bus().send(SingleRelay(String::new())).await.expect("sent");
        let (own, both) = relayed(&mut host).await;
        let fence = own.fence.expect("a singleton has one").to_string();
        assert_eq!(both.len(), 2);
        for seen in both {
            assert_eq!(seen.headers.get(Headers::FENCE), Some(fence.as_str()), "{}", seen.text);
            assert_eq!(trace(&seen.headers), trace(&own.headers), "{}", seen.text);
        }
        host.stop().await;
    }
}

/// A scoped value is made once for a message, however many ask for it, and gone when the message is finished, however
/// that ends.
#[tokio::test]
async fn scoped_values_end_with_their_message() {
    let place = Place::memory();
    let census = Census::default();
    let alive = std::sync::Arc::clone(&census.alive);
    let answers = [Answer::Done, Answer::DeadLetter("no"), Answer::Panic, Answer::Done];
    let made = place.host(&["scoped-note"]).answering_in_turn(answers);
    let mut host = made.with(|host| host.provide(census.clone())).start().await;
    for (n, attempts) in [1, 1, 2].into_iter().enumerate() {
        host.handle.bus().send(ScopedNote(n.to_string())).await.expect("sent");
        for _ in 0..attempts {
            assert_eq!(host.seen().await.text, n.to_string());
        }
        host.until_drained("scoped-note").await;
        assert_eq!(alive.load(Ordering::SeqCst), 0, "after message {n}");
    }
    assert_eq!(census.made.load(Ordering::SeqCst), 4, "one for each attempt");
    host.stop().await;
}
