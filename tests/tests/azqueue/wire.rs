//! What lies in a queue: as it is documented, for whoever reads it with a program of his own.

use std::time::{Duration, SystemTime};

use azure_core::base64;
use bus::clock::Timestamp;
use bus::contract::{Due, Transport};
use bus::message::Verdict;
use bus_tests::by_hand::{body, command, receive_now, settle};
use bus_tests::wait::in_time;

use crate::bench::{LONG, bench, next, puts, updates};

/// The line and the body of a text.
fn read(text: &str) -> (serde_json::Value, Vec<u8>) {
    let bytes = base64::decode(text).expect("Base64");
    let end = bytes.iter().position(|byte| *byte == b'\n').expect("a line break");
    (serde_json::from_slice(&bytes[..end]).expect("a line of JSON"), bytes[end + 1..].to_vec())
}

#[tokio::test]
async fn a_message_lies_in_its_queue_as_documented_and_never_vanishes_by_itself() {
    let bench = bench!();
    let host = bench.host().await;
    let mut sent = command("work", "{\"a\":\n1}");
    sent.envelope.headers = [("traceparent", "00-1")].into_iter().collect();
    sent.envelope.time_to_live = Some(Duration::from_secs(3600));
    host.try_send(sent.clone()).await.unwrap();
    let seen = bench.raw.peek(&bench.queue()).await;
    let (line, body) = read(&seen.all("MessageText")[0]);
    let expected = serde_json::json!({
        "v": 1, "id": sent.envelope.id.to_string(), "type": "test", "sent": sent.envelope.sent_at.as_micros(),
        "live": 3_600_000_000u64, "headers": { "traceparent": "00-1" },
    });
    assert_eq!((line, body), (expected, b"{\"a\":\n1}".to_vec()));
    assert!(seen.all("ExpirationTime")[0].contains(" 9999 "), "{:?}", seen.all("ExpirationTime"));
}

#[tokio::test]
async fn a_dead_letter_lies_beside_it_with_the_reason() {
    let bench = bench!();
    let host = bench.host().await;
    let consumer = host.consumer(LONG).await;
    host.send("hopeless").await;
    let got = next(&consumer).await;
    let error = Some(bus::Error::new(bus::ErrorKind::Handler, "no such tenant"));
    let verdict = Verdict::DeadLetter { reason: "failed too often".into(), error };
    settle(&consumer, &got.receipt, verdict).await.unwrap();
    let seen = bench.raw.peek(&bench.dead_letters()).await;
    let (line, body) = read(&seen.all("MessageText")[0]);
    assert_eq!((&line["dead"]["reason"], body), (&"failed too often".into(), b"hopeless".to_vec()));
    assert!(line["dead"]["error"].as_str().is_some_and(|error| error.contains("no such tenant")), "{line}");
    assert_eq!((&line["dead"]["deliveries"], &line["claims"]), (&1.into(), &1.into()));
    assert_eq!(bench.raw.count(&bench.queue()).await, 0);
}

/// M20: what somebody else has put there is delivered as it is, each time under the same id.
#[tokio::test]
async fn what_somebody_else_has_put_there_is_delivered_raw() {
    let bench = bench!();
    let host = bench.host().await;
    let consumer = host.consumer(LONG).await;
    bench.raw.put(&bench.queue(), "no Base64 at all").await;
    let first = next(&consumer).await;
    assert_eq!(body(&first), "no Base64 at all");
    settle(&consumer, &first.receipt, Verdict::Release).await.unwrap();
    let second = next(&consumer).await;
    assert_eq!((second.envelope.id, second.delivery_count), (first.envelope.id, 1));
    let verdict = Verdict::DeadLetter { reason: "undecodable".into(), error: None };
    settle(&consumer, &second.receipt, verdict).await.unwrap();
    let dead = host.dead().await;
    assert_eq!(
        (dead[0].reason.as_str(), &dead[0].envelope.body[..]),
        ("undecodable", &b"no Base64 at all"[..])
    );
}

/// A delay of ten days is one of seven, and a note of when it is due.
#[tokio::test]
async fn a_delay_beyond_seven_days_is_put_off_for_seven_with_its_due_time() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
    for delay in [days(7), days(10)] {
        host.try_send(command("work", "later").due(Some(Due::In(delay)))).await.unwrap();
    }
    let waits: Vec<_> = proxy
        .seen(&puts())
        .iter()
        .map(|seen| seen.request.parameter("visibilitytimeout").map(str::to_owned))
        .collect();
    assert_eq!(waits, [Some("604800".to_owned()), Some("604800".to_owned())]);
    let placed = host.try_send(command("work", "never").due(Some(Due::In(days(10))))).await.unwrap();
    let delay = host.transport.capabilities().delay.unwrap();
    assert!(delay.cancel(&placed, None).await.unwrap());
    assert!(!delay.cancel(&placed, None).await.unwrap());
    assert_eq!(bench.raw.count(&bench.queue()).await, 2);
}

/// M36: one that comes up before it is due is put off again by whoever comes upon it, which is no attempt; also if it has
/// come up several times, and if it was claimed and lost meanwhile.
#[tokio::test]
async fn what_comes_up_before_it_is_due_is_put_off_again_and_that_is_no_attempt() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    let now = Timestamp::from(SystemTime::now());
    let due = now + Duration::from_secs(3);
    let line = serde_json::json!({
        "v": 1, "id": uuid::Uuid::new_v4().to_string(), "type": "test", "sent": now.as_micros(),
        "due": due.as_micros(),
    });
    bench.raw.put(&bench.queue(), &base64::encode(format!("{line}\nin a week"))).await;
    let consumer = host.consumer(LONG).await;
    let got = next(&consumer).await;
    let early = due.since(Timestamp::from(SystemTime::now()));
    assert_eq!(early, Duration::ZERO, "it came {early:?} too early");
    assert_eq!((body(&got), got.delivery_count, got.crashes), ("in a week", 1, 0));
    assert!(!proxy.seen(&updates()).is_empty(), "it was put off");
    settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap();
    assert!(receive_now(&consumer, 1).await.is_empty());
}

/// An event that is published while a subscription is made by another host reaches it: nobody remembers who there was.
#[tokio::test]
async fn a_subscription_of_another_host_gets_the_next_event() {
    let bench = bench!();
    let (publisher, reader) = (bench.host().await, bench.host().await);
    for name in ["first", "second", "third"] {
        let subscription = bus_tests::by_hand::endpoint(&format!("placed/{name}"));
        reader.transport.prepare(&[(*subscription).clone()]).await.unwrap();
        let event = bus::contract::Outgoing::new(subscription.target(), bus_tests::by_hand::envelope(name));
        publisher.try_send(event).await.unwrap();
        let consumer = reader.consumer_of(&format!("placed/{name}"), LONG).await;
        assert_eq!(body(&in_time("the event", next(&consumer)).await), name);
    }
}
