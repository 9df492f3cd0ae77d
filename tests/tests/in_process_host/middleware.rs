//! What messages pass on their way to the handlers, and on their way out.

use std::sync::Arc;

use bus::prelude::*;
use bus::sender::OutgoingMessage;
use bus::{ErrorKind, Host};
use parking_lot::Mutex;

use super::Place;
use super::handlers::{Note, Relay};

/// What has happened, in order.
type Diary = Arc<Mutex<Vec<String>>>;

/// A middleware that notes the way in and the way out.
fn noting(diary: &Diary, name: &'static str) -> impl bus::pipeline::Middleware {
    let diary = Arc::clone(diary);
    move |delivery: Delivery, next: Next| {
        let diary = Arc::clone(&diary);
        async move {
            diary.lock().push(format!("{name} before"));
            let verdict = next.run(delivery).await;
            diary.lock().push(format!("{name} after"));
            verdict
        }
    }
}

/// What this binary's own middleware writes to, where a message carries it along.
#[derive(Clone)]
struct Written(Diary);

async fn own(delivery: Delivery, next: Next) -> Verdict {
    around("own", delivery, next).await
}

async fn innermost(delivery: Delivery, next: Next) -> Verdict {
    around("innermost", delivery, next).await
}

async fn around(name: &str, delivery: Delivery, next: Next) -> Verdict {
    let written = delivery.scope.get::<Written>().expect("it is provided");
    written.0.lock().push(format!("{name} before"));
    if delivery.envelope.headers.get("panics") == Some(name) {
        panic!("on purpose");
    }
    let verdict = next.run(delivery).await;
    written.0.lock().push(format!("{name} after"));
    verdict
}

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "parade")]
struct Parade;

#[provide]
fn written() -> Written {
    Written(Diary::default())
}

#[processor(middleware = [own, innermost], dead_letter_delivery_limit = 1)]
async fn parade(_message: Parade, written: Dep<Written>) {
    written.0.lock().push("run".to_owned());
}

/// The promise: middleware at the level of the host, the transport and the processor, from the outside in; within each
/// level in the order given.
#[bus::test]
async fn middleware_of_host_transport_and_processor_wraps_every_run_in_this_order() {
    let diary = Diary::default();
    let made = Place::memory().host(&["parade", "note"]).with(|host| {
        host.transport_middleware("default", noting(&diary, "transport"))
            .middleware(noting(&diary, "first"))
            .middleware(noting(&diary, "second"))
            .provide(Written(Arc::clone(&diary)))
    });
    let embedded = made.start_virtually().await;
    embedded.host.bus().send(Parade).await.expect("sent");
    embedded.host.settled().await;
    let names = ["first", "second", "transport", "own", "innermost"];
    let mut wanted: Vec<String> = names.iter().map(|name| format!("{name} before")).collect();
    wanted.push("run".to_owned());
    wanted.extend(names.iter().rev().map(|name| format!("{name} after")));
    assert_eq!(*diary.lock(), wanted);

    diary.lock().clear();
    embedded.host.bus().send(Note("another".into())).await.expect("sent");
    embedded.host.settled().await;
    assert!(!diary.lock().iter().any(|line| line.starts_with("own")), "{:?}", diary.lock());
    assert!(diary.lock().contains(&"transport after".to_owned()));
}

/// A panic of a processor's middleware is a failure of the attempt.
#[bus::test]
async fn a_panic_of_a_processors_middleware_is_a_failure() {
    let embedded = Place::memory().host(&["parade"]).start_virtually().await;
    embedded.host.bus().send(Parade).header("panics", "innermost").await.expect("sent");
    embedded.host.settled().await;
    let dead = embedded.host.dead::<Parade>();
    let error = dead.first().and_then(|letter| letter.error.clone()).expect("it is dead, and why");
    assert!(error.contains("a middleware panicked: on purpose"), "{error}");
}

/// The promise: outgoing middleware sees every message that is sent or published, at the level of the host and then of the
/// transport, in the order given; what it adds travels; what it refuses is not sent. So with what a handler sends.
#[bus::test]
async fn outgoing_middleware_sees_adds_to_and_refuses_what_is_sent_in_this_order() {
    let stamping = |name: &'static str| {
        move |mut message: OutgoingMessage| async move {
            let seen = message.envelope.headers.get("seen").map_or(String::new(), |seen| format!("{seen} "));
            message.envelope.headers.insert("seen", format!("{seen}{name}"));
            message.envelope.headers.insert("to", format!("{} {}", message.transport(), message.target()));
            Ok(message)
        }
    };
    async fn refuse(message: OutgoingMessage) -> Result<OutgoingMessage> {
        match message.envelope.headers.get("please") {
            Some("refuse") => Err(bus::Error::new(ErrorKind::InvalidInput, "it asked for it")),
            Some("panic") => panic!("on purpose"),
            _ => Ok(message),
        }
    }
    let made = Place::memory().host(&["relay", "relayed", "note"]).with(|host| {
        host.transport_outgoing_middleware("default", stamping("transport"))
            .outgoing_middleware(stamping("first"))
            .outgoing_middleware(stamping("second"))
            .outgoing_middleware(refuse)
    });
    let mut embedded = made.start_virtually().await;
    let bus = embedded.host.bus();
    bus.send(Relay(String::new())).await.expect("sent");
    embedded.host.settled().await;
    let seen = embedded.seen_so_far();
    assert_eq!(seen.len(), 3, "the relay, and what its handler and its service have sent");
    for seen in seen {
        assert_eq!(seen.headers.get("seen"), Some("first second transport"), "{seen:?}");
        assert_eq!(seen.headers.get("to"), Some(format!("default {}", seen.at).as_str()), "{seen:?}");
        assert!(seen.headers.get(Headers::TRACEPARENT).is_some(), "{seen:?}");
    }

    let bus = embedded.host.bus();
    let refused = bus.send(Note("never".into())).header("please", "refuse").await.expect_err("refused");
    assert_eq!((refused.kind(), refused.to_string().as_str()), (ErrorKind::InvalidInput, "it asked for it"));
    let panicked = bus.send(Note("never".into())).header("please", "panic").await.expect_err("refused");
    assert!(panicked.to_string().contains("an outgoing middleware panicked: on purpose"), "{panicked}");
    let both = bus.send_all([Note("one".into()), Note("other".into())]).await;
    assert!(both.iter().all(|sent| sent.is_ok()), "{both:?}");
    embedded.host.settled().await;
    let seen: Vec<_> = embedded.seen_so_far().into_iter().map(|seen| (seen.text, seen.headers)).collect();
    assert_eq!(seen.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>(), ["one", "other"]);
    assert!(seen.iter().all(|(_, headers)| headers.get("seen").is_some()), "{seen:?}");
}

/// What the bus itself says of a message is not an outgoing middleware's to change.
#[bus::test]
async fn outgoing_middleware_cannot_forge_what_is_the_buss_own() {
    async fn forge(mut message: OutgoingMessage) -> Result<OutgoingMessage> {
        message.envelope.headers.insert(Headers::FENCE, "7");
        Ok(message)
    }
    let made = Place::memory().host(&["note"]).with(|host| host.outgoing_middleware(forge));
    let embedded = made.start_virtually().await;
    let refused = embedded.host.bus().send(Note("forged".into())).await.expect_err("refused");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    embedded.host.settled().await;
    assert!(embedded.host.completed::<Note>().is_empty());
}

/// A program without processors has its outgoing middleware too.
#[tokio::test]
async fn what_a_producer_sends_passes_outgoing_middleware() {
    async fn refuse(_message: OutgoingMessage) -> Result<OutgoingMessage> {
        Err(bus::Error::new(ErrorKind::InvalidInput, "nothing leaves"))
    }
    let builder = Host::builder().transport("default", &Place::memory().url).outgoing_middleware(refuse);
    let producer = builder.connect().await.expect("connected");
    let refused = producer.bus().send(Note("never".into())).await.expect_err("refused");
    assert_eq!(refused.to_string(), "nothing leaves");
    producer.close().await;
}

/// A middleware for a transport that is not there would see nothing, and is refused.
#[test]
fn middleware_for_a_transport_that_is_not_there_is_refused() {
    async fn pass(message: OutgoingMessage) -> Result<OutgoingMessage> {
        Ok(message)
    }
    let host = || Host::builder().transport("default", "memory://middleware").only(["parade"]);
    let incoming = host().transport_middleware("biling", own).build().map(drop);
    let outgoing = host().transport_outgoing_middleware("biling", pass).build().map(drop);
    for refused in [incoming, outgoing] {
        let refused = refused.expect_err("there is no such transport");
        assert_eq!(refused.kind(), ErrorKind::Wiring);
        assert!(refused.to_string().contains("\"biling\", which is not configured"), "{refused}");
    }
}
