//! What a test can ask about what has happened.

use bus::contract::PutBack;
use bus::message::{Endpoint, Headers};
use bus::prelude::*;
use bus::testing::*;

use crate::handlers::*;

/// What was sent, with all that was said about it, by the test and by handlers.
#[bus::test]
async fn what_was_sent_is_told_as_it_was_sent() -> Result<()> {
    let script = Script::of(|seen| Act::Send(Answer(seen.n)));
    let host = host(&["note"], &script).await;
    let sent = host.bus().send(Note(1)).header("tenant", "acme").await?;
    host.bus().send(Note(2)).delay(1.hours()).time_to_live(2.hours()).await?;
    host.bus().send(Note(3)).due(host.now() + 3.days()).await?;
    host.settled().await;

    let notes = host.sent::<Note>();
    assert_eq!(notes.iter().map(|note| note.message.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(
        (notes[0].id, notes[0].headers.get("tenant"), notes[0].delay),
        (sent.id(), Some("acme"), None)
    );
    assert_eq!((notes[1].delay, notes[1].time_to_live), (Some(1.hours()), Some(2.hours())));
    assert_eq!(notes[2].delay, Some(3.days()));

    host.advance(1.hours()).await;
    let answers = host.sent::<Answer>();
    assert_eq!(
        answers.iter().map(|a| (a.message.0, a.at)).collect::<Vec<_>>(),
        [(1, 0.hours()), (2, 1.hours())]
    );
    let trace = |headers: &Headers| headers.get(Headers::TRACEPARENT).map(|trace| trace[..35].to_owned());
    assert_eq!(trace(&answers[0].headers), trace(&notes[0].headers), "one trace");
    Ok(())
}

/// Events are told whether anyone subscribes to them or not.
#[bus::test]
async fn what_was_published_is_told() -> Result<()> {
    let host = host(&["note"], &Script::of(|seen| Act::Publish(Happened(seen.n)))).await;
    host.bus().publish(Happened(1)).await?;
    host.bus().send(Note(2)).await?;
    host.settled().await;
    assert_eq!(host.published::<Happened>().iter().map(|event| event.message.0).collect::<Vec<_>>(), [1, 2]);
    assert!(host.completed::<Happened>().is_empty());
    Ok(())
}

/// A message that was taken back is told as such.
#[bus::test]
async fn what_was_cancelled_is_told() -> Result<()> {
    let host = host(&["note"], &Script::fine()).await;
    let later = host.bus().send(Note(1)).delay(1.hours()).await?;
    host.bus().send(Note(2)).delay(1.hours()).await?;
    assert!(host.bus().cancel(&later).await?);
    host.advance(1.hours()).await;
    assert_eq!(host.sent::<Note>().iter().map(|note| note.cancelled).collect::<Vec<_>>(), [true, false]);
    assert_eq!(host.completed::<Note>().len(), 1);
    Ok(())
}

#[bus::test]
async fn what_was_completed_is_told() -> Result<()> {
    let script = Script::of(|seen| if seen.count == 1 { Act::Fail } else { Act::Succeed });
    let host = host(&["first"], &script).await;
    let id = host.bus().publish(Happened(4)).await?.id();
    host.advance(1.hours()).await;
    let [done] = host.completed::<Happened>().try_into().expect("one");
    assert_eq!((done.message, done.id, done.delivery_count), (Happened(4), id, 2));
    assert_eq!(done.endpoint, Endpoint::parse("happened/first")?);
    let after = host.retried::<Happened>()[0].after;
    assert!(done.at >= after && done.at - after <= 1.milliseconds(), "tokio's timers know milliseconds");
    Ok(())
}

/// Each attempt, why it failed, and when there will be another.
#[bus::test]
async fn what_was_retried_is_told_attempt_by_attempt() -> Result<()> {
    let script = Script::of(|seen| match seen.count {
        1 => Act::Fail,
        2 => Act::Panic,
        _ => Act::Succeed,
    });
    let host = host(&["note"], &script).await;
    let id = host.bus().send(Note(5)).await?.id();
    host.advance(1.days()).await;
    let retried = host.retried::<Note>();
    assert_eq!(
        retried.iter().map(|r| (r.failures, r.at)).collect::<Vec<_>>(),
        [(1, 0.hours()), (2, 6.hours())]
    );
    assert!(retried.iter().all(|r| r.message == Note(5) && r.id == id && r.after == 6.hours()));
    assert_eq!(retried[0].error, "it does not work");
    assert!(retried[1].error.contains("panicked: on purpose"), "{}", retried[1].error);
    assert_eq!(retried[0].endpoint, Endpoint::queue("note")?);
    assert_eq!(host.completed::<Note>().len(), 1);
    Ok(())
}

/// The dead letters as they are: one that was put back is none any more.
#[bus::test]
async fn what_is_dead_is_told_until_it_is_put_back() -> Result<()> {
    let script = Script::of(|_| Act::Fail);
    let host = host(&["note"], &script).await;
    let id = host.bus().send(Note(6)).header("tenant", "acme").await?.id();
    host.advance(3.days()).await;
    let [dead] = host.dead::<Note>().try_into().expect("one");
    assert_eq!((dead.message, dead.id, dead.delivery_count), (Some(Note(6)), id, 13));
    assert_eq!((dead.reason.as_str(), dead.error.as_deref()), ("failed 13 times", Some("it does not work")));
    assert_eq!((dead.at, dead.headers.get("tenant")), (3.days(), Some("acme")));
    assert_eq!(dead.endpoint, Endpoint::queue("note")?);
    assert_eq!(host.retried::<Note>().len(), 12, "the last attempt is not followed by another");

    let put_back = host.inspect("default").put_back(&Endpoint::queue("note")?, &[id]).await?;
    assert_eq!(put_back, [(id, PutBack::Done)]);
    assert!(host.dead::<Note>().is_empty());
    host.settled().await;
    assert_eq!(script.seen().len(), 14);
    Ok(())
}

/// Bytes that are no such message are told as they came.
#[bus::test]
async fn what_cannot_be_decoded_is_told_as_bytes() -> Result<()> {
    #[derive(Debug, Serialize, Deserialize)]
    struct Foreign(String);
    impl bus::Message for Foreign {
        const TYPE: &'static str = "Note";
    }
    impl bus::Command for Foreign {
        const QUEUE: &'static str = "note";
    }
    let host = host(&["note"], &Script::fine()).await;
    host.bus().send(Foreign("no number".into())).await?;
    host.settled().await;
    let [dead] = host.dead::<Note>().try_into().expect("one");
    assert_eq!(
        (dead.message, &dead.body[..], dead.reason.as_str()),
        (None, &b"\"no number\""[..], "undecodable")
    );
    let text = crate::panic_in(|| host.sent::<Note>());
    assert!(text.contains("cannot be read as one"), "{text}");
    Ok(())
}

/// Each transport has a store of its own, those that nobody reads included.
#[bus::test]
async fn messages_go_to_the_transport_that_they_name() -> Result<()> {
    let script = Script::fine();
    let builder = TestHost::builder().only(["note", "invoice"]).transport("archive").provide(script.clone());
    let host = builder.start().await?;
    host.bus().send(Invoice(1)).await?;
    host.bus().send(Archived(2)).await?;
    host.settled().await;
    assert_eq!(host.completed::<Invoice>().len(), 1);
    assert_eq!(host.sent::<Archived>()[0].message, Archived(2));
    let archived = Endpoint::queue("archived")?;
    assert_eq!(host.inspect("archive").depth(&archived).await?.ready, 1);
    assert!(crate::panic_in(|| host.inspect("nowhere")).contains("\"nowhere\""));
    Ok(())
}

/// A bus for a handler that is called by hand.
#[tokio::test]
async fn a_bus_of_its_own_tells_what_was_sent() -> Result<()> {
    let bus = TestBus::with_transports(["archive"]);
    let id = MessageId::fresh();
    let script = Script::of(|_| Act::Send(Answer(1)));
    note(Note(1), DeliveryCount(1), id, bus.bus(), Dep::new(script)).await?;
    bus.bus().publish(Happened(2)).await?;
    bus.bus().send(Invoice(3)).await?;
    bus.bus().send(Archived(4)).delay(5.seconds()).await?;
    assert_eq!(bus.sent::<Answer>()[0].message, Answer(1));
    assert_eq!(bus.published::<Happened>()[0].message, Happened(2));
    assert_eq!(bus.sent::<Invoice>()[0].message, Invoice(3));
    assert_eq!(bus.sent::<Archived>()[0].delay, Some(5.seconds()));
    Ok(())
}

/// It can be made anywhere, and two of them are apart.
#[test]
fn a_bus_of_its_own_needs_no_runtime() {
    let (one, other) = (TestBus::new(), TestBus::new());
    futures_util::FutureExt::now_or_never(async { one.bus().send(Answer(1)).await.expect("sent") });
    assert_eq!((one.sent::<Answer>().len(), other.sent::<Answer>().len()), (1, 0));
}

/// What a handler finds whose term is over.
#[tokio::test]
async fn a_lost_term_refuses() {
    let script = Script::fine();
    let term = Term::lost_for_tests();
    let lost = single(
        Single(1),
        DeliveryCount(1),
        MessageId::fresh(),
        TestBus::new().bus(),
        term.clone(),
        Dep::new(script),
    );
    assert_eq!(lost.await.expect_err("it is lost").kind(), bus::ErrorKind::TermLost);
    term.cancelled().await;
    assert!(!term.intake_open() && term.blocking(|| ()).await.is_err());
}
