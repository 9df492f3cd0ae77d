//! What becomes of a message after its run.

use std::time::{Duration, Instant};

use bus::contract::{OpenOptions, Outgoing, PutBack, Scheme, StoreUrl};
use bus::message::{Delivery, MessageId, Name, Target, Verdict};
use bus::pipeline::Next;
use bus::testing::Durations;
use bus::{Endpoint, Envelope};

use super::handlers::{Answer, AnyhowNote, Hasty, Note, WrappedNote};
use super::{Place, Seen};

/// M21: what fails is tried again later, and given up on at the limit, with what failed last.
#[tokio::test]
async fn what_fails_is_tried_again_up_to_the_limit() {
    for place in Place::each() {
        let mut host = place.host(&["note"]).answering(|_| Answer::Fail).start().await;
        let began = Instant::now();
        host.handle.bus().send(Note("bad".into())).await.expect("sent");
        let counts = [host.seen().await.count, host.seen().await.count, host.seen().await.count];
        assert_eq!(counts, [1, 2, 3]);
        assert!(began.elapsed() >= Duration::from_millis(100), "twice 50 ms, and not in a hot loop");
        host.until_drained("note").await;
        let dead = host.dead("note").await;
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0].reason, "failed 3 times");
        assert_eq!(dead[0].delivery_count, 3);
        assert!(dead[0].error.as_deref().is_some_and(|error| error.contains("it does not work")), "{dead:?}");
        assert!(host.seen_so_far().is_empty());
        host.stop().await;
    }
}

/// A panic is a failure like any other, and the host goes on.
#[tokio::test]
async fn a_panic_is_a_failure() {
    for place in Place::each() {
        let mut host = place.host(&["note"]).answering_in_turn([Answer::Panic]).start().await;
        host.handle.bus().send(Note("once".into())).await.expect("sent");
        assert_eq!(host.seen().await.count, 1);
        assert_eq!(host.seen().await.count, 2);
        host.until_drained("note").await;
        assert_eq!(host.depth("note").await.dead, 0);
        host.stop().await;
    }
}

/// `bus::Error::retry_after` and `dead_letter` are recognised however deep they are in a user's own error.
#[tokio::test]
async fn directives_are_recognised_through_other_error_types() {
    for place in Place::each() {
        let answers = |seen: &Seen| match (seen.count, seen.text.as_str()) {
            (1, "later") => Answer::RetryAfter(Duration::from_millis(400)),
            (1, "never") => Answer::DeadLetter("no such customer"),
            _ => Answer::Done,
        };
        let queues = ["note", "wrapped-note", "anyhow-note"];
        let mut host = place.host(&queues).answering(answers).start().await;
        let bus = host.handle.bus().clone();
        let began = Instant::now();
        for text in ["later", "never"] {
            bus.send(Note(text.into())).await.expect("sent");
            bus.send(WrappedNote(text.into())).await.expect("sent");
            bus.send(AnyhowNote(text.into())).await.expect("sent");
        }
        let mut later = 0;
        while later < 3 {
            let seen = host.seen().await;
            if seen.count == 2 {
                later += 1;
                assert_eq!(seen.text, "later", "{}", seen.at);
                let elapsed = began.elapsed();
                assert!(elapsed >= Duration::from_millis(400), "{}: after {elapsed:?}", seen.at);
            }
        }
        for queue in queues {
            host.until_drained(queue).await;
            let dead = host.dead(queue).await;
            assert_eq!(dead.len(), 1, "{queue}");
            assert_eq!(dead[0].reason, "no such customer", "{queue}");
            assert_eq!(dead[0].delivery_count, 1, "{queue}");
        }
        host.stop().await;
    }
}

/// Sends bytes that no `Note` has ever written.
async fn send_raw(place: &Place, body: &'static [u8]) -> MessageId {
    let url = StoreUrl::parse(&place.url).expect("a URL");
    let open = Scheme::find(url.scheme()).expect("a scheme").transport.expect("it carries messages");
    let transport = open(&url, &OpenOptions::default()).await.expect("it opens");
    let envelope = Envelope::new("foreign", body, bus::clock::Clock::system().wall());
    let id = envelope.id;
    let target = Target::Queue(Name::new("note").expect("a name"));
    for sent in transport.sender().send(vec![Outgoing::new(target, envelope)]).await {
        sent.expect("sent");
    }
    id
}

/// M20: bytes that do not decode are kept as they came, with the reason, after one attempt.
#[tokio::test]
async fn undecodable_bytes_are_dead_lettered_raw_with_the_reason() {
    for place in Place::each() {
        let mut host = place.host(&["note"]).start().await;
        let raw: &[u8] = b"\x00\xff{\"not\": json";
        let id = send_raw(&place, raw).await;
        host.until("it is dead", "note", |depth| depth.dead == 1).await;
        let dead = host.dead("note").await;
        assert_eq!(dead[0].envelope.id, id);
        assert_eq!(dead[0].envelope.body.as_ref(), raw, "as it came");
        assert_eq!(dead[0].reason, "undecodable");
        let error = dead[0].error.as_deref().unwrap_or_default();
        assert!(error.contains("JSON") && error.contains("Note"), "{error}");
        assert!(host.seen_so_far().is_empty(), "no handler has seen it");
        host.stop().await;
    }
}

/// M35: putting back does what it says, once, and answers for each.
#[tokio::test]
async fn putting_dead_letters_back_is_idempotent_and_answered_one_by_one() {
    for place in Place::each() {
        let answers =
            |seen: &Seen| if seen.count == 1 { Answer::DeadLetter("not yet") } else { Answer::Done };
        // Counts begin anew after a put-back, so that the second life is told by what the test says.
        let well = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let told = std::sync::Arc::clone(&well);
        let mut host = place
            .host(&["note"])
            .answering(move |seen| match told.load(std::sync::atomic::Ordering::SeqCst) {
                true => Answer::Done,
                false => answers(seen),
            })
            .start()
            .await;
        let mut ids = Vec::new();
        for text in ["a", "b"] {
            ids.push(host.handle.bus().send(Note(text.into())).await.expect("sent").id());
        }
        host.until("both are dead", "note", |depth| depth.dead == 2).await;
        host.seen_so_far();
        well.store(true, std::sync::atomic::Ordering::SeqCst);

        let queue = Endpoint::queue("note").expect("an endpoint");
        let inspect = host.handle.inspect("default").expect("it can be looked into");
        let stranger = MessageId::fresh();
        let asked = [ids[0], stranger, ids[1]];
        let answers = inspect.put_back(&queue, &asked).await.expect("answered");
        let wanted = [(ids[0], PutBack::Done), (stranger, PutBack::NotFound), (ids[1], PutBack::Done)];
        assert_eq!(answers, wanted);
        let again = inspect.put_back(&queue, &asked).await.expect("answered");
        assert!(again.iter().all(|(_, outcome)| *outcome == PutBack::NotFound), "{again:?}");

        let mut seen = [host.seen().await, host.seen().await];
        seen.sort_by(|a, b| a.text.cmp(&b.text));
        assert_eq!((seen[0].id, seen[1].id), (ids[0], ids[1]), "each once, under its own id");
        assert!(seen.iter().all(|seen| seen.count == 1), "their counts begin anew");
        host.until_drained("note").await;
        assert_eq!(host.depth("note").await.dead, 0);
        assert!(host.seen_so_far().is_empty());
        host.stop().await;
    }
}

/// A handler's time is bounded: its token fires, and a handler that heeds it is taken at its word; one that does not is
/// dropped a second later, and has failed.
#[bus::test]
async fn a_run_past_its_message_lock_timeout_is_asked_to_end_and_then_fails() {
    let embedded = Place::memory().host(&["hasty"]).start_virtually().await;
    let host = &embedded.host;
    host.bus().send(Hasty("polite".into())).await.expect("sent");
    host.settled().await;
    assert_eq!(host.completed::<Hasty>()[0].at, 300.milliseconds(), "200 ms, and 100 ms of its own");

    let began = host.elapsed();
    host.bus().send(Hasty("rude".into())).await.expect("sent");
    host.advance(1.minutes()).await;
    let retried = &host.retried::<Hasty>()[0];
    assert_eq!(retried.at - began, 1_200.milliseconds(), "200 ms, and a second to heed its token");
    assert!(retried.error.contains("message_lock_timeout"), "{}", retried.error);
    let dead = &host.dead::<Hasty>()[0];
    assert_eq!(dead.at - began, 2_450.milliseconds(), "twice that, and 50 ms in between");
    assert!(dead.error.as_deref().is_some_and(|error| error.contains("message_lock_timeout")), "{dead:?}");
}

/// Middleware sees every message on its way in and its verdict on the way out, in the order given, and may keep the
/// handler from running.
#[bus::test]
async fn middleware_wraps_every_run_in_the_order_given() {
    let order = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let noting = |name: &'static str| {
        let order = std::sync::Arc::clone(&order);
        move |delivery: Delivery, next: Next| {
            let order = std::sync::Arc::clone(&order);
            async move {
                order.lock().push(format!("{name} before"));
                let verdict = next.run(delivery).await;
                order.lock().push(format!("{name} after"));
                verdict
            }
        }
    };
    async fn refuse_strangers(delivery: Delivery, next: Next) -> Verdict {
        match delivery.envelope.headers.get("tenant") {
            Some(_) => next.run(delivery).await,
            None => Verdict::DeadLetter { reason: "no tenant".into(), error: None },
        }
    }
    let made = Place::memory().host(&["note"]);
    let made = made.with(|host| {
        host.middleware(noting("outer")).middleware(noting("inner")).middleware(refuse_strangers)
    });
    let mut embedded = made.start_virtually().await;
    embedded.host.bus().send(Note("known".into())).header("tenant", "acme").await.expect("sent");
    embedded.host.settled().await;
    assert_eq!(*order.lock(), ["outer before", "inner before", "inner after", "outer after"]);
    embedded.host.bus().send(Note("stranger".into())).await.expect("sent");
    embedded.host.settled().await;
    assert_eq!(embedded.host.dead::<Note>()[0].reason, "no tenant");
    assert_eq!(embedded.seen_so_far().len(), 1, "the stranger's handler has not run");
}

/// What a program redacts is neither logged nor kept with the message, whoever has said it: a handler's error with its
/// causes, a panic, a reason, a middleware.
#[bus::test]
async fn what_is_redacted_is_neither_logged_nor_kept() {
    async fn strict(delivery: Delivery, next: Next) -> Verdict {
        match delivery.envelope.headers.get("tenant") {
            Some(tenant) => Verdict::DeadLetter { reason: format!("{tenant} knows the s3cret"), error: None },
            None => next.run(delivery).await,
        }
    }
    let heard = super::heard::Heard::listen();
    let answers = [Answer::DeadLetter("the s3cret is out"), Answer::PanicWith("s3cret")];
    let made = Place::memory()
        .host(&["anyhow-note"])
        .answering_in_turn(answers)
        .with(|host| host.middleware(strict).redact(|text| text.replace("s3cret", "[redacted]").into()));
    let embedded = made.start_virtually().await;
    let bus = embedded.host.bus();
    bus.send(AnyhowNote("dead".into())).await.expect("sent");
    embedded.host.settled().await;
    bus.send(AnyhowNote("tenant's".into())).header("tenant", "acme").await.expect("sent");
    embedded.host.settled().await;
    bus.send(AnyhowNote("panics".into())).await.expect("sent");
    embedded.host.settled().await;
    let dead = embedded.host.dead::<AnyhowNote>();
    let reasons: Vec<_> = dead.iter().map(|letter| letter.reason.as_str()).collect();
    assert_eq!(reasons, ["the [redacted] is out", "acme knows the [redacted]"]);
    assert!(dead[0].error.as_ref().is_some_and(|error| error.contains("while noting")), "{dead:?}");
    let told = heard.events("message.retried").pop().expect("the panic is told");
    assert!(told.contains("panicked: [redacted]"), "{told}");
    assert!(!heard.all().contains("s3cret") && !format!("{dead:?}").contains("s3cret"), "{}", heard.all());
}
