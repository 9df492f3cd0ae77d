//! Bodies that have no room in a queue.

use std::time::Duration;

use bus::contract::{Due, Outgoing, PutBack, Transport};
use bus::message::Verdict;
use bus_emulators::{Fault, FaultProxy};
use bus_tests::by_hand::{command, endpoint, envelope, settle};

use crate::bench::{LONG, Pattern, bench, deletes, next, work};

/// More than lies in a queue.
const LARGE: usize = 200_000;

fn large() -> String {
    "x".repeat(LARGE)
}

#[tokio::test]
async fn a_large_body_is_in_a_blob_until_its_message_is_done() {
    let bench = bench!();
    let host = bench.host().await;
    let consumer = host.consumer(LONG).await;
    host.send(&"x".repeat(40_000)).await;
    assert!(bench.raw.blobs(&bench.bodies()).await.is_empty(), "this one has room");
    let small = next(&consumer).await;
    settle(&consumer, &small.receipt, Verdict::Complete).await.unwrap();
    let mut message = command("work", &large());
    message.envelope.headers = [("traceparent", "00-1")].into_iter().collect();
    host.try_send(message.clone()).await.unwrap();
    assert_eq!(bench.raw.blobs(&bench.bodies()).await.len(), 1);
    let got = next(&consumer).await;
    assert_eq!(got.envelope, message.envelope);
    settle(&consumer, &got.receipt, Verdict::Release).await.unwrap();
    let got = next(&consumer).await;
    assert_eq!((got.envelope.body.len(), got.delivery_count), (LARGE, 1));
    settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap();
    assert!(bench.raw.blobs(&bench.bodies()).await.is_empty());
}

#[tokio::test]
async fn each_subscription_has_a_blob_of_its_own() {
    let bench = bench!();
    let host = bench.host().await;
    let names = ["placed/a", "placed/b"];
    for name in names {
        host.transport.prepare(&[(*endpoint(name)).clone()]).await.unwrap();
    }
    host.try_send(Outgoing::new(endpoint(names[0]).target(), envelope(&large()))).await.unwrap();
    for (name, left) in names.into_iter().zip([1, 0]) {
        let consumer = host.consumer_of(name, LONG).await;
        let got = next(&consumer).await;
        assert_eq!(got.envelope.body.len(), LARGE);
        settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap();
        assert_eq!(bench.raw.blobs(&bench.bodies()).await.len(), left);
    }
}

#[tokio::test]
async fn a_dead_letter_keeps_its_blob_until_it_is_done_or_dropped() {
    let bench = bench!();
    let host = bench.host().await;
    let consumer = host.consumer(LONG).await;
    let inspect = host.transport.capabilities().inspect.unwrap();
    let bury = async || {
        let got = next(&consumer).await;
        let verdict = Verdict::DeadLetter { reason: "given up".into(), error: None };
        settle(&consumer, &got.receipt, verdict).await.unwrap();
        got.envelope.id
    };
    host.send(&large()).await;
    let id = bury().await;
    assert_eq!(host.dead().await[0].envelope.body.len(), LARGE);
    assert_eq!(inspect.put_back(&work(), &[id]).await.unwrap(), [(id, PutBack::Done)]);
    let id = bury().await;
    assert_eq!(bench.raw.blobs(&bench.bodies()).await.len(), 1);
    inspect.drop_dead_letters(&work(), &[id]).await.unwrap();
    assert!(bench.raw.blobs(&bench.bodies()).await.is_empty());
}

/// One that has room in the queue and, with the reason and the error, none among the dead letters.
#[tokio::test]
async fn a_dead_letter_that_has_no_room_any_more_gets_a_blob() {
    let bench = bench!();
    let host = bench.host().await;
    let consumer = host.consumer(LONG).await;
    let body = "x".repeat(48_600);
    host.send(&body).await;
    assert!(bench.raw.blobs(&bench.bodies()).await.is_empty());
    let got = next(&consumer).await;
    let verdict = Verdict::DeadLetter { reason: "y".repeat(3_000), error: None };
    settle(&consumer, &got.receipt, verdict).await.unwrap();
    let dead = host.dead().await;
    assert_eq!(dead[0].envelope.body.len(), body.len());
    assert!(dead[0].reason.starts_with("yyy") && dead[0].reason.ends_with('…'));
}

#[tokio::test]
async fn a_message_whose_blob_is_gone_is_dead_lettered_with_that_reason() {
    let bench = bench!();
    let host = bench.host().await;
    let consumer = host.consumer(LONG).await;
    host.send(&large()).await;
    let blob = bench.raw.blobs(&bench.bodies()).await.remove(0);
    assert_eq!(bench.raw.delete_blob(&bench.bodies(), &blob).await.status, 202);
    host.send("the next").await;
    assert_eq!(&next(&consumer).await.envelope.body[..], b"the next");
    let dead = host.dead().await;
    assert!(dead[0].reason.contains("blob is gone"), "{:?}", dead[0].reason);
}

#[tokio::test]
async fn what_is_taken_back_leaves_no_blob() {
    let bench = bench!();
    let host = bench.host().await;
    let later = command("work", &large()).due(Some(Due::In(Duration::from_secs(600))));
    let placed = host.try_send(later).await.unwrap();
    assert_eq!(bench.raw.blobs(&bench.bodies()).await.len(), 1);
    assert!(host.transport.capabilities().delay.unwrap().cancel(&placed, None).await.unwrap());
    assert!(bench.raw.blobs(&bench.bodies()).await.is_empty());
}

/// Whoever is interrupted between writing a dead letter and deleting its message leaves both, and so does one who puts it
/// back. Each has a body of its own: dropping the letter, or completing the message, leaves the other whole.
#[tokio::test]
async fn a_dead_letter_and_its_message_have_a_body_each() {
    for drop_first in [true, false] {
        let bench = bench!();
        let proxy = bench.proxy();
        let host = bench.host_at(&proxy).await;
        let inspect = host.transport.capabilities().inspect.unwrap();
        let consumer = host.consumer(LONG).await;
        host.send(&large()).await;
        let got = next(&consumer).await;
        let id = got.envelope.id;
        let bury = async || {
            let verdict = Verdict::DeadLetter { reason: "given up".into(), error: None };
            settle(&consumer, &got.receipt, verdict).await
        };
        let cut = proxy.inject(deletes(), Fault::DropRequest);
        bury().await.unwrap_err();
        assert_eq!(bench.raw.blobs(&bench.bodies()).await.len(), 2, "both are there");
        cut.remove();
        bury().await.unwrap();
        assert_eq!(bench.raw.blobs(&bench.bodies()).await.len(), 1, "that of the message is gone with it");
        assert_eq!(host.dead().await[0].envelope.body.len(), LARGE);

        let cut = proxy.inject(deletes(), Fault::DropRequest);
        inspect.put_back(&work(), &[id]).await.unwrap_err();
        cut.remove();
        let got = next(&consumer).await;
        assert_eq!((got.envelope.body.len(), got.envelope.id), (LARGE, id));
        assert_eq!(host.dead().await.len(), 1, "the letter has been given back");
        let drop_letter = async || inspect.drop_dead_letters(&work(), &[id]).await.unwrap();
        if drop_first {
            drop_letter().await;
            settle(&consumer, &got.receipt, Verdict::Release).await.unwrap();
            let got = next(&consumer).await;
            assert_eq!(got.envelope.body.len(), LARGE, "dropping the letter has not taken its body");
            settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap();
        } else {
            settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap();
            assert_eq!(host.dead().await[0].envelope.body.len(), LARGE, "nor completing the message");
            drop_letter().await;
        }
        assert!(bench.raw.blobs(&bench.bodies()).await.is_empty());
    }
}

/// A container that is not there says nothing about a message: it is left for later, and for hosts that find it.
#[tokio::test]
async fn a_message_whose_container_is_missing_comes_later() {
    let bench = bench!();
    let proxy = FaultProxy::start(bench.azurite.blob_endpoint()).expect("a proxy");
    let host = bench.host_with_blobs_at(&proxy).await;
    let consumer = host.consumer(LONG).await;
    host.send(&large()).await;
    let missing = Fault::Refuse { status: 404, code: "ContainerNotFound".to_owned(), retry_after: None };
    let missing = proxy.inject_times(2, Pattern::any().method("GET"), missing);
    let got = next(&consumer).await;
    assert_eq!(missing.count(), 2);
    assert_eq!((got.envelope.body.len(), got.delivery_count, got.crashes), (LARGE, 1, 0));
    assert!(host.dead().await.is_empty());
}

/// A message that was claimed while it was being taken back is not called taken back, and keeps its body; one that was
/// deleted by a request whose answer was lost is.
#[tokio::test]
async fn what_was_claimed_meanwhile_is_not_taken_back() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    let delay = host.transport.capabilities().delay.unwrap();
    let later = |seconds| command("work", &large()).due(Some(Due::In(Duration::from_secs(seconds))));

    let placed = host.try_send(later(600)).await.unwrap();
    let lost = proxy.inject_times(1, deletes(), Fault::DropAnswer);
    assert!(delay.cancel(&placed, None).await.unwrap());
    assert_eq!((lost.count(), bench.raw.blobs(&bench.bodies()).await.len()), (1, 0));

    let placed = host.try_send(later(2)).await.unwrap();
    let consumer = host.consumer(LONG).await;
    let _held = proxy.inject_times(1, deletes(), Fault::HoldRequest);
    let (taken_back, got) = tokio::join!(delay.cancel(&placed, None), next(&consumer));
    assert!(!taken_back.unwrap());
    settle(&consumer, &got.receipt, Verdict::Release).await.unwrap();
    assert_eq!(next(&consumer).await.envelope.body.len(), LARGE);
}
