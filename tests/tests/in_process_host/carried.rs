//! What travels with what a handler sends, and what ends with its message.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use bus::message::{Headers, TraceParent};
use bus::testing::Durations;

use super::handlers::{Answer, Census, Dig, Relay, ScopedNote, SingleRelay};
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
#[bus::test]
async fn what_is_sent_outside_of_a_run_begins_a_trace() {
    let mut embedded = Place::memory().host(&["relay", "relayed"]).start_virtually().await;
    let host = &embedded.host;
    host.bus().send(Relay(String::new())).await.expect("sent");
    host.bus().send(Relay(String::new())).await.expect("sent");
    host.settled().await;
    let seen = embedded.seen_so_far();
    let traces: BTreeSet<_> = seen.iter().map(|seen| trace(&seen.headers)).collect();
    assert_eq!((seen.len(), traces.len()), (6, 2), "one trace for each, with all that follows from it");
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

/// So does what its blocking work sends, on a thread of its own.
#[tokio::test]
async fn what_a_terms_blocking_work_sends_is_the_runs() {
    for place in Place::each() {
        let mut host = place.host(&["dig", "relayed"]).start().await;
        host.handle.bus().send(Dig("once".into())).header(Headers::TRACEPARENT, PARENT).await.expect("sent");
        let (mut own, mut sent) = (None, None);
        while own.is_none() || sent.is_none() {
            let seen = host.seen().await;
            match seen.at {
                "dig" if seen.text == "begun" => {}
                "dig" => own = Some(seen),
                _ => sent = Some(seen),
            }
        }
        let (own, sent) = (own.expect("it runs"), sent.expect("it was sent"));
        assert_eq!(own.text, "sent, Ok(true)");
        let fence = own.fence.expect("a singleton has one").to_string();
        assert_eq!(sent.headers.get(Headers::FENCE), Some(fence.as_str()));
        assert_eq!(trace(&sent.headers), trace(&own.headers));
        host.stop().await;
    }
}

/// A scoped value is made once for a message, however many ask for it, and gone when the message is finished, however
/// that ends.
#[bus::test]
async fn scoped_values_end_with_their_message() {
    let census = Census::default();
    let alive = std::sync::Arc::clone(&census.alive);
    let answers = [Answer::Done, Answer::DeadLetter("no"), Answer::Panic, Answer::Done];
    let made = Place::memory().host(&["scoped-note"]).answering_in_turn(answers);
    let mut embedded = made.with(|host| host.provide(census.clone())).start_virtually().await;
    for (n, attempts) in [1, 1, 2].into_iter().enumerate() {
        embedded.host.bus().send(ScopedNote(n.to_string())).await.expect("sent");
        embedded.host.advance(1.minutes()).await;
        let seen: Vec<_> = embedded.seen_so_far().into_iter().map(|seen| seen.text).collect();
        assert_eq!(seen, vec![n.to_string(); attempts]);
        assert_eq!(alive.load(Ordering::SeqCst), 0, "after message {n}");
    }
    assert_eq!(census.made.load(Ordering::SeqCst), 4, "one for each attempt");
}
