//! Claims: leases, their ends, and old receipts. Scenarios M2 to M5.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{Bench, LONG, expect_kind, ids, retry, settle, text, try_extend, try_settle};
use crate::conformance::Checked;
use crate::conformance::case::{cases, ensure};
use crate::contract::{Consumer, ConsumerSpec, Settlement};
use crate::error::ErrorKind;
use crate::message::{Delivery, Endpoint, Verdict};

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        a_lapsed_claim_comes_back_as_a_crash = "A claim that runs out is taken over, and counts as a crash.";
        a_claim_lasts_as_long_as_its_lease = "A claim is taken over no earlier than its lease ends.";
        an_extended_claim_does_not_lapse = "A claim that is extended in time is kept for as long as it is extended.";
        an_old_receipt_settles_nothing = "A receipt names the claim: after a take-over it settles nothing.";
        an_old_receipt_extends_nothing = "A receipt names the claim: after a take-over it extends nothing.";
        a_receipt_of_a_released_claim_is_lost = "A receipt ends with its claim, also when the same host claims again.";
        settling_twice_is_refused = "Settling what is settled answers that the receipt is lost.";
        answers_stand_in_the_order_of_their_items = "A batch is answered item by item, in the order of its items.";
        a_lapsed_batch_comes_back_whole = "Every claim of a batch is recovered, not only the first page.";
    }
}

/// Sends one message, claims it for the short lease, and lets another host take it over when that has run out.
async fn taken_over(
    bench: &Bench,
    queue: &Arc<Endpoint>,
) -> Checked<(Arc<dyn Consumer>, Delivery, Arc<dyn Consumer>, Delivery)> {
    let spec = ConsumerSpec::new(Arc::clone(queue), bench.timing.lease);
    let first = bench.consumer_with(spec).await?;
    let second = bench.other_consumer(queue).await?;
    bench.send(queue, "slow").await?;
    let lapsed = bench.receive_one(&first).await?;
    let current = bench.receive_one(&second).await?;
    ensure!(current.envelope.id == lapsed.envelope.id, "{:?} came", text(&current));
    Ok((first, lapsed, second, current))
}

async fn a_lapsed_claim_comes_back_as_a_crash(bench: &Bench) -> Checked {
    let queue = bench.queue("lapsed").await?;
    let (_, _, _, current) = taken_over(bench, &queue).await?;
    let history = (current.delivery_count, current.failures, current.crashes, current.crashed_alone);
    ensure!(
        history == (2, 0, 1, false),
        "claims, failures, crashes, crashed alone after one crash were {history:?}"
    );
    Ok(())
}

async fn a_claim_lasts_as_long_as_its_lease(bench: &Bench) -> Checked {
    let queue = bench.queue("not-early").await?;
    let spec = ConsumerSpec::new(Arc::clone(&queue), bench.timing.lease);
    let first = bench.consumer_with(spec).await?;
    let second = bench.other_consumer(&queue).await?;
    bench.send(&queue, "slow").await?;
    let before = tokio::time::Instant::now();
    bench.receive_one(&first).await?;
    bench.receive_one(&second).await?;
    // A lease begins after `before` was read, so that no slowness can make this fail; a millisecond is rounding.
    let held = before.elapsed() + Duration::from_millis(1);
    ensure!(held >= bench.timing.lease, "a lease of {:?} ended after {held:?}", bench.timing.lease);
    Ok(())
}

async fn an_extended_claim_does_not_lapse(bench: &Bench) -> Checked {
    let queue = bench.queue("extended").await?;
    let lease = bench.timing.lease;
    let holder = bench.consumer_with(ConsumerSpec::new(Arc::clone(&queue), lease)).await?;
    let other = bench.other_consumer(&queue).await?;
    bench.send(&queue, "long work").await?;
    let mut held = bench.receive_one(&holder).await?;
    for _ in 0..10 {
        try_extend(&holder, &mut held.receipt, lease).await??;
        bench.receive_nothing_for(&other, lease / 4, "its claim was extended in time").await?;
    }
    // The new lease counts from the extension, whatever the consumer's own is.
    try_extend(&holder, &mut held.receipt, LONG).await??;
    bench.receive_nothing_for(&other, lease * 3 / 2, "its claim was extended for longer").await?;
    settle(&holder, &held, Verdict::Complete).await
}

async fn an_old_receipt_settles_nothing(bench: &Bench) -> Checked {
    let queue = bench.queue("old-settle").await?;
    let (first, lapsed, second, current) = taken_over(bench, &queue).await?;
    let verdicts = [
        Verdict::Release,
        retry(Duration::ZERO),
        Verdict::DeadLetter { reason: "stale".into(), error: None },
        Verdict::Complete,
    ];
    for verdict in verdicts {
        let what = format!("{verdict:?} with a receipt whose claim had been taken over");
        expect_kind(try_settle(&first, &lapsed.receipt, verdict).await?, ErrorKind::ReceiptLost, &what)?;
        bench.receive_nothing(&second, "a lost receipt changes nothing").await?;
    }
    settle(&second, &current, Verdict::Release).await?;
    let again = bench.receive_one(&second).await?;
    ensure!(again.envelope.id == current.envelope.id, "the message had been changed by a lost receipt");
    Ok(())
}

async fn an_old_receipt_extends_nothing(bench: &Bench) -> Checked {
    let queue = bench.queue("old-extend").await?;
    let (first, mut lapsed, second, mut current) = taken_over(bench, &queue).await?;
    // The new holder's claim ends soon, and the old one's heartbeat must not keep it.
    try_extend(&second, &mut current.receipt, bench.timing.lease).await??;
    let answer = try_extend(&first, &mut lapsed.receipt, LONG).await?;
    expect_kind(answer, ErrorKind::ReceiptLost, "extending with a receipt whose claim had been taken over")?;
    let third = bench.receive_one(&first).await?;
    ensure!(third.crashes == 2, "after two lapsed claims {} crashes were counted", third.crashes);
    Ok(())
}

async fn a_receipt_of_a_released_claim_is_lost(bench: &Bench) -> Checked {
    let queue = bench.queue("released").await?;
    let consumer = bench.consumer(&queue).await?;
    bench.send(&queue, "twice").await?;
    let mut old = bench.receive_one(&consumer).await?;
    settle(&consumer, &old, Verdict::Release).await?;
    let current = bench.receive_one(&consumer).await?;
    let answer = try_settle(&consumer, &old.receipt, Verdict::Complete).await?;
    expect_kind(answer, ErrorKind::ReceiptLost, "settling with a released claim's receipt")?;
    let answer = try_extend(&consumer, &mut old.receipt, LONG).await?;
    expect_kind(answer, ErrorKind::ReceiptLost, "extending with a released claim's receipt")?;
    let answer = consumer.record_alone(&old.receipt).await;
    expect_kind(answer, ErrorKind::ReceiptLost, "a lone run recorded with a released claim's receipt")?;
    settle(&consumer, &current, Verdict::Complete).await
}

async fn settling_twice_is_refused(bench: &Bench) -> Checked {
    let queue = bench.queue("twice").await?;
    let consumer = bench.consumer(&queue).await?;
    bench.send_all(&queue, &["a", "b"]).await?;
    for delivery in bench.receive_all(&consumer, 2).await? {
        settle(&consumer, &delivery, Verdict::Complete).await?;
        let again = try_settle(&consumer, &delivery.receipt, Verdict::Complete).await?;
        expect_kind(again, ErrorKind::ReceiptLost, "settling for the second time")?;
    }
    // Within one batch too.
    bench.send(&queue, "c").await?;
    let got = bench.receive_one(&consumer).await?;
    let once = Settlement::new(got.receipt, Verdict::Complete);
    let answers = consumer.settle(vec![once.clone(), once]).await;
    let oks = answers.iter().filter(|answer| answer.is_ok()).count();
    ensure!(oks == 1, "one claim settled twice in a batch was answered {answers:?}");
    Ok(())
}

async fn answers_stand_in_the_order_of_their_items(bench: &Bench) -> Checked {
    let queue = bench.queue("order-of-answers").await?;
    let consumer = bench.consumer(&queue).await?;
    bench.send_all(&queue, &["a", "b", "c", "d", "e"]).await?;
    let got = bench.receive_all(&consumer, 5).await?;
    for n in [0, 3] {
        settle(&consumer, &got[n], Verdict::Complete).await?;
    }
    let expected = [false, true, true, false, true];
    let mut receipts: Vec<_> = got.iter().map(|delivery| delivery.receipt.clone()).collect();
    let extended: Vec<_> = consumer.extend(&mut receipts, LONG).await.iter().map(Result::is_ok).collect();
    ensure!(extended == expected, "claims alive: {expected:?}; answers to extending them: {extended:?}");
    let settlements =
        receipts.into_iter().map(|receipt| Settlement::new(receipt, Verdict::Complete)).collect();
    let settled: Vec<_> = consumer.settle(settlements).await.iter().map(Result::is_ok).collect();
    ensure!(settled == expected, "claims alive: {expected:?}; answers to settling them: {settled:?}");
    Ok(())
}

async fn a_lapsed_batch_comes_back_whole(bench: &Bench) -> Checked {
    const COUNT: usize = 150;
    let queue = bench.queue("lapsed-batch").await?;
    let spec = ConsumerSpec::new(Arc::clone(&queue), bench.timing.lease);
    let first = bench.consumer_with(spec).await?;
    let second = bench.other_consumer(&queue).await?;
    bench.send_all(&queue, &["one of many"; COUNT]).await?;
    // The store may be slow, and the first of these may lapse before the last is claimed: ids, not counts.
    let mut claimed = std::collections::HashSet::new();
    while claimed.len() < COUNT {
        claimed.extend(ids(&bench.receive(&first, COUNT).await?));
    }
    let mut recovered = std::collections::HashSet::new();
    while recovered.len() < COUNT {
        recovered.extend(ids(&bench.receive(&second, 40).await?));
    }
    ensure!(claimed == recovered, "other messages were recovered than had been claimed");
    Ok(())
}
