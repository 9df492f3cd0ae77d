//! Claims: receipts that are no longer good, and their one owner.

use std::time::Duration;

use bus::message::Verdict;
use bus::{Error, ErrorKind};
use bus_emulators::Fault;
use bus_tests::by_hand::{command, settle};
use bus_tests::wait::in_time;

use crate::bench::{LEASE, LONG, bench, claims, creations, deletes, next, updates};

fn verdicts() -> [Verdict; 4] {
    let error = Error::new(ErrorKind::Handler, "it did not work");
    [
        Verdict::Complete,
        Verdict::Release,
        Verdict::Retry { after: Some(Duration::ZERO), error },
        Verdict::DeadLetter { reason: "given up".into(), error: None },
    ]
}

/// Azure says 404, its emulator 400: the claim is lost either way, whatever is done with it, and for good.
#[tokio::test]
async fn a_stale_receipt_is_a_lost_claim_in_either_words() {
    for (status, code) in [(400, "PopReceiptMismatch"), (404, "MessageNotFound")] {
        for verdict in verdicts() {
            let bench = bench!();
            let proxy = bench.proxy();
            let host = bench.host_at(&proxy).await;
            let consumer = host.consumer(LONG).await;
            host.send("claimed").await;
            let got = next(&consumer).await;
            for pattern in [updates(), deletes()] {
                proxy.inject(pattern, Fault::Refuse { status, code: code.to_owned(), retry_after: None });
            }
            let answer = settle(&consumer, &got.receipt, verdict.clone()).await.unwrap_err();
            assert_eq!(answer.kind(), ErrorKind::ReceiptLost, "{code} {verdict:?}");
            proxy.clear();
            let again = settle(&consumer, &got.receipt, verdict.clone()).await.unwrap_err();
            assert_eq!(again.kind(), ErrorKind::ReceiptLost, "{code} {verdict:?}");
            assert!(host.dead().await.is_empty(), "a lost claim writes no dead letter");
        }
    }
}

/// M4, M5: somebody cleared the queue; the next extension says so.
#[tokio::test]
async fn a_message_that_was_deleted_by_somebody_is_a_lost_claim() {
    let bench = bench!();
    let host = bench.host().await;
    let consumer = host.consumer(LONG).await;
    host.send("claimed").await;
    let got = next(&consumer).await;
    bench.raw.clear(&bench.queue()).await;
    let answer = consumer.extend(&mut [got.receipt.clone()], LONG).await.remove(0);
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::ReceiptLost);
}

/// The pop receipt has one owner: a verdict that comes while an extension is under way waits for its answer, and then ends
/// the claim under the receipt that is in it.
#[tokio::test]
async fn a_verdict_waits_for_the_extension_that_is_under_way() {
    for verdict in verdicts() {
        let bench = bench!();
        let proxy = bench.proxy();
        let host = bench.host_at(&proxy).await;
        let consumer = host.consumer(LONG).await;
        host.send("claimed").await;
        let got = next(&consumer).await;
        let held = proxy.inject_times(1, updates(), Fault::HoldAnswer);
        let (extending, mut receipts) = (consumer.clone(), [got.receipt.clone()]);
        let extension = tokio::spawn(async move { extending.extend(&mut receipts, LONG).await.remove(0) });
        in_time("the extension is under way", held.struck(1)).await;
        let (settling, receipt) = (consumer.clone(), got.receipt.clone());
        let kind = verdict.clone();
        let settlement = tokio::spawn(async move { settle(&settling, &receipt, kind).await });
        // Nothing of it is asked while the receipt is not known.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!((proxy.seen(&updates()).len(), proxy.seen(&deletes()).len()), (1, 0), "{verdict:?}");
        held.release();
        in_time("extended", extension).await.unwrap().unwrap();
        in_time("settled", settlement).await.unwrap().unwrap_or_else(|error| panic!("{verdict:?}: {error}"));
    }
}

/// An extension is waited for as long as its answer is of use, and not given up for another, which the first would make
/// stale: a service that hangs for less than that costs no claim.
#[tokio::test]
async fn an_extension_that_takes_long_is_waited_for() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    let lease = Duration::from_secs(20);
    let consumer = host.consumer(lease).await;
    host.send("claimed").await;
    let got = next(&consumer).await;
    proxy.inject_times(1, updates(), Fault::DelayAnswer(Duration::from_secs(6)));
    consumer.extend(&mut [got.receipt.clone()], lease).await.remove(0).unwrap();
    assert_eq!(proxy.seen(&updates()).len(), 1, "it was asked once");
    settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap();
}

/// What was claimed for a consumer that was told to stop meanwhile, and did not wait for it, is given back, uncounted.
#[tokio::test]
async fn a_claim_whose_answer_comes_after_a_stop_is_given_back() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    let consumer = host.consumer(LONG).await;
    host.send("claimed in vain").await;
    let held = proxy.inject_times(1, claims(), Fault::HoldAnswer);
    let stop = tokio_util::sync::CancellationToken::new();
    let receiving = consumer.receive(1, &stop);
    let stopping = async {
        held.struck(1).await;
        stop.cancel();
    };
    let (received, ()) = in_time("it returns", async { futures_util::join!(receiving, stopping) }).await;
    assert!(received.unwrap().is_empty());
    held.release();
    let got = next(&bench.host().await.consumer(LONG).await).await;
    assert_eq!((&got.envelope.body[..], got.delivery_count, got.crashes), (&b"claimed in vain"[..], 1, 0));
}

/// M11: the queue is deleted while one of its messages is run. The claim is lost, the queue is made again as soon as Azure
/// lets it be made, and what is sent then is received.
#[tokio::test]
async fn a_deleted_queue_is_made_again_as_soon_as_it_can_be() {
    let bench = bench!();
    let proxy = bench.proxy();
    let (host, other) = (bench.host_at(&proxy).await, bench.host().await);
    let consumer = host.consumer(LONG).await;
    host.send("gone with it").await;
    let got = next(&consumer).await;
    let being_deleted =
        Fault::Refuse { status: 409, code: "QueueBeingDeleted".to_owned(), retry_after: None };
    let refused = proxy.inject_times(3, creations(), being_deleted);
    bench.raw.delete_queue(&bench.queue()).await;
    let receiving = consumer.clone();
    let received = tokio::spawn(async move { next(&receiving).await });
    let lost = settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::ReceiptLost);
    in_time("Azure refuses for a while", refused.struck(3)).await;
    // A producer makes it as well.
    other.send("after").await;
    let got = in_time("it is received", received).await.unwrap();
    assert_eq!(&got.envelope.body[..], b"after");
    settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap();
    bench.raw.delete_queue(&bench.dead_letters()).await;
    other.send("hopeless").await;
    let got = next(&consumer).await;
    settle(&consumer, &got.receipt, verdicts()[3].clone()).await.unwrap();
    assert_eq!(host.dead().await.len(), 1, "the queue of dead letters is made again too");
}

/// While a queue is being deleted, a send says so, once it has waited as long as a call may: it was not sent.
#[tokio::test]
async fn a_send_to_a_queue_that_is_being_deleted_says_so() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    bench.raw.delete_queue(&bench.queue()).await;
    proxy.inject(
        creations(),
        Fault::Refuse { status: 409, code: "QueueBeingDeleted".to_owned(), retry_after: None },
    );
    let began = std::time::Instant::now();
    let error = host.try_send(command("work", "too soon")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true), "{error}");
    assert!(error.to_string().contains("being deleted"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

/// M1, M9: what was claimed by a host that is no more comes back when its lease ends, as a crash.
#[tokio::test]
async fn what_nobody_holds_any_more_comes_back_as_a_crash() {
    let bench = bench!();
    let host = bench.host().await;
    host.send("claimed").await;
    let consumer = host.consumer(LEASE).await;
    next(&consumer).await;
    drop(consumer);
    let again = next(&host.consumer(LONG).await).await;
    assert_eq!((again.delivery_count, again.crashes), (2, 1));
}
