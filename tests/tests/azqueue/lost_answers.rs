//! Requests that were performed, or not, and nobody heard of it.

use std::time::Duration;

use bus::message::Verdict;
use bus::{Error, ErrorKind};
use bus_emulators::Fault;
use bus_tests::by_hand::{command, receive_now, settle};
use bus_tests::wait::in_time;

use crate::bench::{LEASE, LONG, bench, claims, deletes, next, puts, updates};

fn retry() -> Verdict {
    Verdict::Retry { after: Some(Duration::ZERO), error: Error::new(ErrorKind::Handler, "it did not work") }
}

/// A send whose answer is lost is told as unknown, and never made again: it is there once, or not at all.
#[tokio::test]
async fn a_send_without_an_answer_is_unknown_and_not_repeated() {
    for (fault, there) in [(Fault::DropAnswer, 1), (Fault::DropRequest, 0)] {
        let bench = bench!();
        let proxy = bench.proxy();
        let host = bench.host_at(&proxy).await;
        let lost = proxy.inject(puts(), fault.clone());
        let error = host.try_send(command("work", "once")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{fault:?}: {error}");
        assert_eq!(lost.count(), 1, "{fault:?}");
        assert_eq!(bench.raw.count(&bench.queue()).await, there, "{fault:?}");
    }
}

/// After a send that nobody answers the others to the same target are not tried, each for as long: they are certainly not
/// sent, and that is told at once.
#[tokio::test]
async fn many_sends_to_a_service_that_does_not_answer_take_no_longer_than_one() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    let held = proxy.inject(puts(), Fault::HoldRequest);
    let began = std::time::Instant::now();
    let batch = (0..5).map(|number| command("work", &number.to_string())).collect();
    let answers = bus::contract::Transport::sender(&*host.transport).send(batch).await;
    let kinds: Vec<_> = answers.into_iter().map(|answer| answer.unwrap_err().kind()).collect();
    assert_eq!(kinds[0], ErrorKind::OutcomeUnknown);
    assert_eq!(kinds[1..], [ErrorKind::Unavailable; 4]);
    assert_eq!(held.count(), 1, "after {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(20), "it took {:?}", began.elapsed());
}

/// What was claimed and not heard of comes back when its lease ends, as a crash.
#[tokio::test]
async fn a_claim_without_an_answer_comes_back_when_its_lease_ends() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    host.send("claimed by nobody").await;
    let lost = proxy.inject_times(1, claims(), Fault::DropAnswer);
    let consumer = host.consumer(LEASE).await;
    let began = std::time::Instant::now();
    let got = next(&consumer).await;
    assert_eq!((lost.count(), got.delivery_count, got.crashes), (1, 2, 1));
    assert!(began.elapsed() >= LEASE, "it came after {:?}", began.elapsed());
}

/// A verdict whose answer is lost is asked for again, and then done: not refused, and not done twice.
#[tokio::test]
async fn a_verdict_without_an_answer_is_done() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    let consumer = host.consumer(LONG).await;
    host.send("settled").await;
    let got = next(&consumer).await;
    let lost = proxy.inject_times(1, updates(), Fault::DropAnswer);
    settle(&consumer, &got.receipt, retry()).await.unwrap();
    assert_eq!(lost.count(), 1);
    let again = next(&consumer).await;
    assert_eq!((again.delivery_count, again.failures, again.crashes), (2, 1, 0));

    let lost = proxy.inject_times(1, deletes(), Fault::DropAnswer);
    settle(&consumer, &again.receipt, Verdict::Complete).await.unwrap();
    assert_eq!(lost.count(), 1);
    let statuses: Vec<_> = proxy.seen(&deletes()).iter().map(|seen| seen.performed).collect();
    assert_eq!(statuses, [Some(204), Some(404)], "the second was told that there is nothing");
    assert!(receive_now(&consumer, 1).await.is_empty());
    assert_eq!(bench.raw.count(&bench.queue()).await, 0);
}

/// Also if none of a call's answers came: asked for once more, it is found to be done.
#[tokio::test]
async fn a_verdict_whose_answers_were_all_lost_is_found_to_be_done() {
    for (step, verdict) in [(updates(), retry()), (deletes(), Verdict::Complete)] {
        let bench = bench!();
        let proxy = bench.proxy();
        let host = bench.host_at(&proxy).await;
        let consumer = host.consumer(LONG).await;
        host.send("settled").await;
        let got = next(&consumer).await;
        let lost = proxy.inject(step.clone(), Fault::DropAnswer);
        let unknown = settle(&consumer, &got.receipt, verdict.clone()).await;
        assert_eq!(lost.count(), 3, "{step:?}");
        lost.remove();
        let error = unknown.unwrap_err();
        assert!(error.is_transient(), "{step:?}: {error}");
        settle(&consumer, &got.receipt, verdict.clone()).await.unwrap();
        let again = settle(&consumer, &got.receipt, verdict).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::ReceiptLost);
    }
}

/// With the answer to an extension its new receipt is lost, and so is the claim: that is said at once, and the message
/// comes back.
#[tokio::test]
async fn an_extension_without_an_answer_loses_the_claim() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    let consumer = host.consumer(LEASE).await;
    host.send("extended").await;
    let got = next(&consumer).await;
    let lost = proxy.inject_times(1, updates(), Fault::DropAnswer);
    let answer = consumer.extend(&mut [got.receipt.clone()], LEASE).await.remove(0);
    assert_eq!((lost.count(), answer.unwrap_err().kind()), (1, ErrorKind::ReceiptLost));
    let again = settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::ReceiptLost);
    assert_eq!(next(&consumer).await.crashes, 1);
}

/// A verdict that finds the claim stale because of such an extension is not taken to be done, though an attempt of its own
/// may have been made before: the message, and its large body, are still there.
#[tokio::test]
async fn a_verdict_after_an_extension_without_an_answer_is_not_called_done() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    let consumer = host.consumer(LONG).await;
    let body = "x".repeat(200_000);
    host.send(&body).await;
    let got = next(&consumer).await;
    // Performed once, and not heard of; no try after it arrives.
    let lost = proxy.inject_times(1, updates(), Fault::DropAnswer);
    let cut = proxy.inject(updates(), Fault::DropRequest);
    let error = consumer.extend(&mut [got.receipt.clone()], LEASE).await.remove(0).unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(lost.count(), 1);
    cut.remove();
    let cut = proxy.inject_times(1, deletes(), Fault::DropRequest);
    let error = settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap_err();
    assert_eq!((cut.count(), error.kind()), (1, ErrorKind::ReceiptLost));
    let again = next(&consumer).await;
    assert_eq!((again.envelope.id, again.envelope.body.len()), (got.envelope.id, body.len()));
}

/// What is written down before a run that is made alone is waited for likewise: made again meanwhile, it would be told that
/// the claim is gone, and the message given up although it never ran.
#[tokio::test]
async fn the_note_of_a_run_alone_is_waited_for() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    let consumer = host.consumer(LONG).await;
    host.send("alone").await;
    let got = next(&consumer).await;
    let late = proxy.inject_times(1, updates(), Fault::DelayAnswer(Duration::from_secs(6)));
    consumer.record_alone(&got.receipt).await.unwrap();
    assert_eq!((late.count(), proxy.seen(&updates()).len()), (1, 1));
    settle(&consumer, &got.receipt, Verdict::Release).await.unwrap();
    let again = next(&consumer).await;
    assert_eq!((again.delivery_count, again.crashed_alone), (1, false));
}

/// One that never arrived loses nothing.
#[tokio::test]
async fn an_extension_that_did_not_arrive_is_made_again() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    let consumer = host.consumer(LONG).await;
    host.send("extended").await;
    let got = next(&consumer).await;
    let lost = proxy.inject_times(1, updates(), Fault::DropRequest);
    consumer.extend(&mut [got.receipt.clone()], LONG).await.remove(0).unwrap();
    assert_eq!(lost.count(), 1);
    settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap();
}

/// M1: a dead letter is written before its message is taken out of the queue, so that it is lost in no case: tried again it
/// may be written twice, and is shown, and put back, once.
#[tokio::test]
async fn a_dead_letter_without_an_answer_is_shown_and_put_back_once() {
    for (step, fault) in
        [(puts(), Fault::DropAnswer), (puts(), Fault::DropRequest), (deletes(), Fault::DropAnswer)]
    {
        let bench = bench!();
        let proxy = bench.proxy();
        let host = bench.host_at(&proxy).await;
        let consumer = host.consumer(LONG).await;
        host.send("hopeless").await;
        let got = next(&consumer).await;
        let lost = proxy.inject_times(1, step.clone(), fault.clone());
        let bury = async || {
            let verdict = Verdict::DeadLetter { reason: "given up".into(), error: None };
            settle(&consumer, &got.receipt, verdict).await
        };
        if let Err(error) = bury().await {
            assert!(error.is_transient(), "{step:?} {fault:?}: {error}");
            bury().await.unwrap();
        }
        assert_eq!(lost.count(), 1, "{step:?} {fault:?}");
        let dead = host.dead().await;
        assert_eq!((dead.len(), host.depth().await.ready), (1, 0), "{step:?} {fault:?}");
        let inspect = bus::contract::Transport::capabilities(&*host.transport).inspect.unwrap();
        let answer = inspect.put_back(&crate::bench::work(), &[dead[0].envelope.id]).await.unwrap();
        assert_eq!(answer[0].1, bus::contract::PutBack::Done);
        let back = in_time("it is back", next(&consumer)).await;
        assert_eq!(back.envelope.id, got.envelope.id);
        assert_eq!(bench.raw.count(&bench.queue()).await, 1, "{step:?} {fault:?}: it is back once");
        assert_eq!(bench.raw.count(&bench.dead_letters()).await, 0, "{step:?} {fault:?}");
    }
}
