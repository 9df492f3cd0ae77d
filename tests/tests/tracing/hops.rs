//! One trace over each hop, and links where a parent would be wrong.

use bus::prelude::*;
use bus::testing::{Durations, TestHost};
use opentelemetry::trace::SpanKind;
use tracing::Instrument;

use super::handlers::{Aftermath, Dig, Seen, Todo, Work};
use super::spans::Recorder;
use super::{host, work_endpoint, working_host};

/// From a request to what follows from it: one trace, each a child of the one before.
#[bus::test]
async fn a_command_an_event_and_each_subscription_are_in_the_trace_of_whoever_sent_the_command() {
    let spans = Recorder::start();
    let host = host(&Seen::default()).await;
    host.bus()
        .send(Work::to(Todo::Publish))
        .into_future()
        .instrument(tracing::info_span!("request"))
        .await
        .expect("sent");
    host.settled().await;
    let [request, send, work, publish] =
        ["request", "send work", "process work", "publish happened"].map(|name| spans.only(name));
    assert!(
        send.is_child_of(&request) && work.is_child_of(&send) && publish.is_child_of(&work),
        "{spans:?}",
        spans = spans.text()
    );
    for name in ["process happened/one", "process happened/two"] {
        assert!(spans.only(name).is_child_of(&publish), "{name}");
    }
    assert_eq!((send.0.span_kind, work.0.span_kind), (SpanKind::Producer, SpanKind::Consumer));
    assert!(work.0.parent_span_is_remote, "it came with a message");
}

/// What is sent outside of any span begins a trace.
#[bus::test]
async fn what_is_sent_outside_of_any_span_begins_a_trace() {
    let spans = Recorder::start();
    let host = host(&Seen::default()).await;
    host.bus().send(Work::to(Todo::Nothing)).await.expect("sent");
    host.bus().send(Work::to(Todo::Nothing)).await.expect("sent");
    host.settled().await;
    let (sends, runs) = (spans.named("send work"), spans.named("process work"));
    assert_ne!(sends[0].trace(), sends[1].trace());
    assert!(runs.iter().all(|run| sends.iter().any(|send| run.is_child_of(send))));
}

/// Each attempt is a child of the one send; the last one tells how often it was tried.
#[bus::test]
async fn a_retry_is_a_child_of_the_same_send() {
    let spans = Recorder::start();
    let host = host(&Seen::default()).await;
    host.bus().send(Work::to(Todo::Fail { times: 2, seconds: 60 })).await.expect("sent");
    host.advance(3.minutes()).await;
    let (send, runs) = (spans.only("send work"), spans.named("process work"));
    assert_eq!(runs.len(), 3);
    assert!(runs.iter().all(|run| run.is_child_of(&send)));
    let told = |name: &str| runs.iter().map(|run| run.attribute(name)).collect::<Vec<_>>();
    assert_eq!(told("bus.delivery_count"), ["1", "2", "3"].map(|count| Some(count.to_owned())));
    assert_eq!(told("bus.failures"), ["0", "1", "2"].map(|count| Some(count.to_owned())));
    assert_eq!(told("bus.verdict"), ["retry", "retry", "complete"].map(|verdict| Some(verdict.to_owned())));
}

/// A message that comes within the hour continues its trace; a later one is linked to it.
#[bus::test]
async fn a_delay_continues_the_trace_for_an_hour_and_is_linked_from_then_on() {
    for (seconds, continues) in [(3600, true), (3601, false), (3 * 24 * 3600, false)] {
        let spans = Recorder::start();
        let host = working_host().await;
        host.bus().send(Work::to(Todo::SendAfter(seconds))).await.expect("sent");
        host.advance(4.days()).await;
        let (sends, runs) = (spans.named("send work"), spans.named("process work"));
        assert!(sends[1].is_child_of(&runs[0]));
        assert_eq!(runs[1].is_child_of(&sends[1]), continues, "after {seconds} s");
        assert_eq!(runs[1].is_linked_to(&sends[1]), !continues, "after {seconds} s");
    }
}

/// So is an attempt that is made so late.
#[bus::test]
async fn a_retry_after_hours_is_linked_to_the_send() {
    let spans = Recorder::start();
    let host = working_host().await;
    host.bus().send(Work::to(Todo::Fail { times: 1, seconds: 7200 })).await.expect("sent");
    host.advance(3.hours()).await;
    let (send, runs) = (spans.only("send work"), spans.named("process work"));
    assert!(runs[0].is_child_of(&send) && runs[1].is_linked_to(&send));
    let linked = runs[1].attribute("bus.linked_trace_id");
    assert_eq!(linked, Some(send.trace().to_string()));
}

/// What somebody puts back has a trace of its own, however soon that is, and so has what follows from it; each is linked.
#[bus::test]
async fn a_dead_letter_that_was_put_back_is_linked_to_the_send() {
    let spans = Recorder::start();
    let host = host(&Seen::default()).await;
    let sent = host.bus().send(Work::to(Todo::DeadLetter)).await.expect("sent");
    host.settled().await;
    put_back(&host, sent.id()).await;
    let (send, runs) = (spans.only("send work"), spans.named("process work"));
    assert_eq!(runs.len(), 2);
    assert!(runs[0].is_child_of(&send), "the first run is as any other");
    assert!(runs[1].is_linked_to(&send), "{:?}", runs[1]);
    let hooks = spans.named("send aftermath");
    assert!(
        hooks[0].is_child_of(&runs[0]) && hooks[1].is_child_of(&runs[1]),
        "what is sent on is within the run"
    );
}

async fn put_back(host: &TestHost, id: bus::MessageId) {
    let answer = host.inspect("default").put_back(&work_endpoint(), &[id]).await.expect("answered");
    assert_eq!(answer.len(), 1);
    host.settled().await;
}

/// What a singleton sends from a thread of its own is within its run.
#[bus::test]
async fn what_a_terms_blocking_work_sends_is_a_child_of_the_run() {
    let spans = Recorder::start();
    let host = host(&Seen::default()).await;
    host.bus().send(Dig).await.expect("sent");
    host.settled().await;
    assert!(spans.only("process aftermath").is_child_of(&spans.only("send aftermath")));
    assert!(spans.only("send aftermath").is_child_of(&spans.only("process dig")));
}

/// One span for a batch; each message's run is its child, and carries on by itself.
#[bus::test]
async fn a_batch_is_one_send_of_which_each_run_is_a_child() {
    let spans = Recorder::start();
    let host = host(&Seen::default()).await;
    let answers = host.bus().send_all([Aftermath, Aftermath, Aftermath]).await;
    assert!(answers.iter().all(Result::is_ok));
    host.settled().await;
    let (send, runs) = (spans.only("send aftermath"), spans.named("process aftermath"));
    assert_eq!(send.attribute("messaging.batch.message_count").as_deref(), Some("3"));
    assert_eq!(send.attribute("messaging.message.id"), None);
    assert_eq!(runs.len(), 3);
    assert!(runs.iter().all(|run| run.is_child_of(&send)));
}

/// A send that fails says so; nothing is told of why but the kind.
#[bus::test]
async fn a_send_that_fails_tells_the_kind_of_its_error() {
    let spans = Recorder::start();
    let host = host(&Seen::default()).await;
    let refused = host.bus().send(Aftermath).header("bus-own", "x").await;
    assert!(refused.is_err());
    let send = spans.only("send aftermath");
    assert_eq!(send.attribute("error.type").as_deref(), Some("InvalidInput"));
    assert_eq!(send.0.status, opentelemetry::trace::Status::error(""));
    assert_eq!(host.depth("aftermath").ready, 0);
}
