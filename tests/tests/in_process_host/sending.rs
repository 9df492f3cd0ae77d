//! What can be said when something is sent, and what is refused.

use std::time::{Duration, Instant, SystemTime};

use bus::message::MessageId;
use bus::testing::TestBus;
use bus::{ErrorKind, Headers, Sent};
use bus_tests::task::Invoice;

use super::Place;
use super::handlers::{Lost, Note};

/// M31: a payload is bytes: NUL, quotes, emoji and what looks like SQL come out as they went in, in headers too.
#[tokio::test]
async fn nul_and_emoji_come_out_as_they_went_in() {
    let odd = "nul \0, 🦀👩‍👩‍👧, \u{feff}\u{202e}, \"'); DROP TABLE bus_message; --\\u0000";
    for place in Place::each() {
        let mut host = place.host(&["note"]).start().await;
        let sent = host.handle.bus().send(Note(odd.into())).header("odd \0 name 🦀", odd).await;
        let id = sent.expect("sent").id();
        let seen = host.seen().await;
        assert_eq!(seen.text, odd);
        assert_eq!(seen.headers.get("odd \0 name 🦀"), Some(odd));
        assert_eq!(seen.id, id);
        host.until_drained("note").await;
        host.stop().await;
    }
}

/// An id that the sender chose is the message's, in every delivery.
#[tokio::test]
async fn a_chosen_message_id_is_kept() {
    for place in Place::each() {
        let mut host = place.host(&["note"]).answering_in_turn([super::Answer::Fail]).start().await;
        let id: MessageId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().expect("an id");
        let sent = host.handle.bus().send(Note("mine".into())).message_id(id).await.expect("sent");
        assert_eq!(sent.id(), id);
        let (first, second) = (host.seen().await, host.seen().await);
        assert_eq!((first.id, first.count), (id, 1));
        assert_eq!((second.id, second.count), (id, 2));
        host.stop().await;
    }
}

/// A delayed message waits in the store (M36), and comes when it is due, neither sooner nor never.
#[tokio::test]
async fn a_delayed_message_comes_when_it_is_due() {
    for place in Place::each() {
        let mut host = place.host(&["note"]).start().await;
        let bus = host.handle.bus().clone();
        let (began, delay) = (Instant::now(), Duration::from_millis(400));
        bus.send(Note("in a while".into())).delay(delay).await.expect("sent");
        let at = SystemTime::now() + 2 * delay;
        bus.send(Note("at a time".into())).due(at).await.expect("sent");
        bus.send(Note("now".into())).await.expect("sent");
        let depth = host.depth("note").await;
        assert_eq!((depth.delayed, depth.in_flight <= 1), (2, true), "no worker holds them: {depth:?}");
        assert_eq!(host.seen().await.text, "now");
        assert_eq!(host.seen().await.text, "in a while");
        assert!(began.elapsed() >= delay, "after {:?}", began.elapsed());
        assert_eq!(host.seen().await.text, "at a time");
        assert!(SystemTime::now() >= at);
        host.stop().await;
    }
}

/// A delayed message can be taken back, also by what was written down about it; one that was done cannot.
#[tokio::test]
async fn a_delayed_message_can_be_cancelled_until_it_is_available() {
    for place in Place::each() {
        let mut host = place.host(&["note"]).start().await;
        let bus = host.handle.bus().clone();
        let later = bus.send(Note("never".into())).delay(Duration::from_secs(3600)).await.expect("sent");
        let written = serde_json::to_string(&later).expect("it can be written down");
        let read: Sent = serde_json::from_str(&written).expect("and read");
        assert_eq!(read, later);
        assert!(bus.cancel(&read).await.expect("answered"));
        assert!(!bus.cancel(&read).await.expect("answered"), "it is gone already");
        assert_eq!(host.depth("note").await.delayed, 0);

        let done = bus.send(Note("done".into())).await.expect("sent");
        host.seen().await;
        host.until_drained("note").await;
        assert!(!bus.cancel(&done).await.expect("answered"), "it has been done");
        assert!(host.seen_so_far().is_empty());
        host.stop().await;
    }
}

/// A message past its time to live is not run: it is a dead letter, called `expired`.
#[tokio::test]
async fn a_message_past_its_time_to_live_is_dead_lettered_as_expired() {
    for place in Place::each() {
        let mut host = place.host(&["note"]).start().await;
        let bus = host.handle.bus().clone();
        let stale = bus.send(Note("stale".into())).delay(Duration::from_millis(150));
        stale.time_to_live(Duration::from_millis(50)).await.expect("sent");
        let fresh = bus.send(Note("fresh".into())).delay(Duration::from_millis(150));
        fresh.time_to_live(Duration::from_secs(3600)).await.expect("sent");
        assert_eq!(host.seen().await.text, "fresh");
        host.until("the other one is dead", "note", |depth| depth.dead == 1).await;
        assert_eq!(host.dead("note").await[0].reason, "expired");
        host.until_drained("note").await;
        assert!(host.seen_so_far().is_empty());
        host.stop().await;
    }
}

/// M29: what is too large is refused before it is sent, at the limit exactly, and alone.
#[tokio::test]
async fn what_is_too_large_is_refused_alone() {
    let mut place = Place::sqlite();
    place.url += "?max_body=100";
    let mut host = place.host(&["note"]).start().await;
    // A string of n ASCII letters is n + 2 bytes of JSON.
    let letters = |bytes: usize| Note("x".repeat(bytes - 2));
    let answers = host.handle.bus().send_all([letters(99), letters(101), letters(100)]).await;
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    let refused = answers[1].as_ref().expect_err("one byte too many");
    assert_eq!(refused.kind(), ErrorKind::TooLarge);
    let text = refused.to_string();
    assert!(text.contains("101") && text.contains("100") && text.contains("Note"), "{text}");
    let lengths = [host.seen().await.text.len(), host.seen().await.text.len()];
    assert_eq!(lengths.iter().sum::<usize>(), 97 + 98);
    host.stop().await;
}

/// What names a transport that is not configured is refused, and the error says what there is.
#[tokio::test]
async fn a_message_for_an_unknown_transport_is_refused() {
    let host = Place::memory().host(&["note"]).start().await;
    let refused = host.handle.bus().send(Lost).await.expect_err("there is no such transport");
    assert_eq!(refused.kind(), ErrorKind::UnknownTransport);
    let text = refused.to_string();
    assert!(text.contains("\"nowhere\"") && text.contains("default"), "{text}");
    assert!(host.handle.inspect("nowhere").is_err());
    host.stop().await;
}

/// The bus's own headers cannot be forged.
#[bus::test]
async fn a_header_of_the_buss_own_is_refused() {
    let bus = TestBus::new();
    let refused = bus.bus().send(Note("n".into())).header(Headers::FENCE, "9").await;
    assert_eq!(refused.expect_err("it is the bus's own").kind(), ErrorKind::InvalidInput);
    assert!(bus.sent::<Note>().is_empty());
}

/// Several transports in one program: each message goes to the one it names.
#[tokio::test]
async fn each_message_goes_to_the_transport_that_it_names() {
    let (place, billing) = (Place::sqlite(), Place::memory());
    let made = place.host(&["note"]).with(|host| host.transport("billing", &billing.url));
    let mut host = made.start().await;
    host.handle.bus().send(Invoice(1)).await.expect("sent");
    host.handle.bus().send(Note("to the default".into())).await.expect("sent");
    assert_eq!(host.seen().await.text, "to the default");
    let invoices = bus::Endpoint::queue("invoice").expect("an endpoint");
    let there = host.handle.inspect("billing").expect("it can be looked into");
    assert_eq!(there.depth(&invoices).await.expect("answered").ready, 1);
    assert_eq!(host.depth("invoice").await.ready, 0);
    host.stop().await;

    // And is read from there by whoever reads it.
    let reading = place.host(&["note", "invoice"]).with(|host| host.transport("billing", &billing.url));
    let mut host = reading.start().await;
    let seen = host.seen().await;
    assert_eq!((seen.at, seen.text.as_str()), ("invoice", "1"));
    host.stop().await;
}
