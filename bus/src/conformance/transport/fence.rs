//! Fences kept with the messages. Scenarios S6, S34.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{
    Bench, LONG, dead_letter, expect_kind, only, retry, settle, text, try_extend, try_settle,
};
use crate::conformance::Checked;
use crate::conformance::case::{cases, ensure};
use crate::contract::{
    Consumer, ConsumerSpec, Due, Fence, FenceClaim, FenceGuard, LockId, Raised, Settlement,
};
use crate::error::ErrorKind;
use crate::message::{Endpoint, Verdict};

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        [Fencing] raising_again_answers_the_same = "Raising to the fence in force, under its lock, may be repeated.";
        [Fencing] a_fence_never_falls = "A lower fence than the one in force is outdated, and changes nothing.";
        [Fencing] another_lock_waits_for_the_row = "A row belongs to its lock until that has run out.";
        [Fencing] claims_keep_the_row_bound = "A singleton that receives keeps its row bound to its lock.";
        [Fencing] extensions_keep_the_row_bound = "So does one that is at work and extends its claim.";
        [Fencing] a_row_is_shown_as_it_stands = "A row shows lock and fence, and an endpoint without one shows none.";
        [Fencing] an_outdated_term_changes_nothing = "Under a lower fence nothing is claimed, extended, settled or recorded.";
        [Fencing] a_waiting_receive_learns_of_its_end = "A receive of a former term ends, and does not take a message.";
        [Fencing] a_former_terms_claims_are_free_at_once = "A new term takes over what a former one had claimed, as a crash.";
        [Fencing] plain_claims_are_not_free_at_once = "What was claimed without a fence keeps its lease.";
        [Fencing] a_guarded_send_needs_its_fence = "A message sent under a fence that is not in force is refused alone.";
        [Fencing, Delay] a_guarded_cancellation_needs_its_fence = "What is taken back under a fence that is not in force stays.";
        [Fencing] an_outdated_settlement_sends_nothing = "What an outdated settlement carries is not sent.";
        [Fencing] a_consumer_needs_a_raised_fence = "A consumer whose fence was never raised gets nothing.";
        [Fencing] fences_of_two_endpoints_are_two = "Raising one endpoint's fence concerns no other.";
        [Fencing] fences_are_large_numbers = "A fence is a clock reading: beyond 2^53, and compared exactly.";
    }
}

fn claim_under(endpoint: &Arc<Endpoint>, lock: &str, fence: u64, lock_lease: Duration) -> FenceClaim {
    FenceClaim::new(Arc::clone(endpoint), "conformance:", &LockId::from(lock), Fence::new(fence), lock_lease)
}

fn claim(endpoint: &Arc<Endpoint>, fence: u64) -> FenceClaim {
    claim_under(endpoint, "queue/one", fence, LONG)
}

async fn raise(bench: &Bench, endpoint: &Arc<Endpoint>, fence: u64) -> Checked {
    let raised = bench.fencing()?.raise(claim(endpoint, fence)).await?;
    ensure!(raised == Raised::Raised, "raising to {fence} was answered {raised:?}");
    Ok(())
}

/// Raises the fence and opens the term's consumer.
async fn term(bench: &Bench, endpoint: &Arc<Endpoint>, fence: u64) -> Checked<Arc<dyn Consumer>> {
    raise(bench, endpoint, fence).await?;
    let spec = ConsumerSpec::new(Arc::clone(endpoint), LONG).fenced(Fence::new(fence), LONG);
    bench.consumer_with(spec).await
}

async fn raising_again_answers_the_same(bench: &Bench) -> Checked {
    let queue = bench.queue("raised-again").await?;
    for fence in [7, 7, 8, 8] {
        raise(bench, &queue, fence).await?;
    }
    Ok(())
}

async fn a_fence_never_falls(bench: &Bench) -> Checked {
    let queue = bench.queue("never-falls").await?;
    raise(bench, &queue, 10).await?;
    for fence in [9, 1] {
        let raised = bench.fencing()?.raise(claim(&queue, fence)).await?;
        ensure!(
            raised == Raised::Outdated { in_force: Fence::new(10) },
            "with 10 in force, raising to {fence} was answered {raised:?}"
        );
    }
    raise(bench, &queue, 10).await
}

async fn another_lock_waits_for_the_row(bench: &Bench) -> Checked {
    let queue = bench.queue("two-locks").await?;
    let fencing = bench.fencing()?;
    let lease = bench.timing.lease;
    fencing.raise(claim_under(&queue, "queue/old", 10, lease)).await?;
    let refused = fencing.raise(claim_under(&queue, "queue/new", 20, lease)).await?;
    let Raised::OtherLock { lock, free_in } = refused else {
        return Err(crate::conformance::Failure::new(format!("a bound row was answered {refused:?}")));
    };
    ensure!(lock == "conformance:#queue/old", "the row was said to belong to {lock:?}");
    ensure!(free_in <= lease, "bound for {lease:?}, it was said to be free in {free_in:?}");
    // A lower fence does not get it afterwards either; a higher one does.
    tokio::time::sleep(free_in + bench.timing.moment).await;
    let lower = fencing.raise(claim_under(&queue, "queue/new", 9, lease)).await?;
    ensure!(lower == Raised::Outdated { in_force: Fence::new(10) }, "a lower fence was answered {lower:?}");
    let higher = fencing.raise(claim_under(&queue, "queue/new", 20, lease)).await?;
    ensure!(higher == Raised::Raised, "a free row was answered {higher:?}");
    Ok(())
}

async fn claims_keep_the_row_bound(bench: &Bench) -> Checked {
    let queue = bench.queue("kept-bound").await?;
    let fencing = bench.fencing()?;
    let lease = bench.timing.lease;
    fencing.raise(claim_under(&queue, "queue/old", 10, lease)).await?;
    let spec = ConsumerSpec::new(Arc::clone(&queue), LONG).fenced(Fence::new(10), LONG);
    let consumer = bench.consumer_with(spec).await?;
    bench.send(&queue, "work").await?;
    bench.receive_one(&consumer).await?;
    tokio::time::sleep(lease + bench.timing.moment).await;
    let refused = fencing.raise(claim_under(&queue, "queue/new", 20, lease)).await?;
    ensure!(matches!(refused, Raised::OtherLock { .. }), "after a claim the row was answered {refused:?}");
    Ok(())
}

async fn extensions_keep_the_row_bound(bench: &Bench) -> Checked {
    let queue = bench.queue("kept-at-work").await?;
    let fencing = bench.fencing()?;
    let lease = bench.timing.lease;
    fencing.raise(claim_under(&queue, "queue/old", 10, lease)).await?;
    // The claim itself binds the row for one lease of the lock, the extension for another from then on.
    let spec = ConsumerSpec::new(Arc::clone(&queue), LONG).fenced(Fence::new(10), lease);
    let consumer = bench.consumer_with(spec).await?;
    bench.send(&queue, "work").await?;
    let mut held = bench.receive_one(&consumer).await?;
    tokio::time::sleep(lease * 2 / 3).await;
    try_extend(&consumer, &mut held.receipt, LONG).await??;
    tokio::time::sleep(lease * 2 / 3).await;
    let refused = fencing.raise(claim_under(&queue, "queue/new", 20, lease)).await?;
    ensure!(
        matches!(refused, Raised::OtherLock { .. }),
        "after an extension the row was answered {refused:?}"
    );
    Ok(())
}

async fn a_row_is_shown_as_it_stands(bench: &Bench) -> Checked {
    let (queue, plain) = (bench.queue("shown").await?, bench.queue("plain").await?);
    let fencing = bench.fencing()?;
    raise(bench, &queue, 12).await?;
    let row = fencing.row(&queue).await?;
    let Some(row) = row else {
        return Err(crate::conformance::Failure::new("a raised endpoint shows no row"));
    };
    ensure!(row.fence == Fence::new(12), "its fence is shown as {}", row.fence);
    ensure!(row.lock == "conformance:#queue/one", "its lock is shown as {:?}", row.lock);
    ensure!(
        !row.bound_for.is_zero() && row.bound_for <= LONG,
        "it is shown as bound for {:?}",
        row.bound_for
    );
    let none = fencing.row(&plain).await?;
    ensure!(none.is_none(), "an endpoint without a fence shows {none:?}");
    Ok(())
}

async fn an_outdated_term_changes_nothing(bench: &Bench) -> Checked {
    let queue = bench.queue("outdated").await?;
    let old = term(bench, &queue, 10).await?;
    bench.send_all(&queue, &["claimed", "waiting"]).await?;
    let mut held = bench.receive_one(&old).await?;
    let new = term(bench, &queue, 11).await?;

    let received = bench.receive_within(&old, 1, bench.timing.patience).await?;
    expect_kind(received, ErrorKind::TermLost, "a receive under a lower fence")?;
    let extended = try_extend(&old, &mut held.receipt, LONG).await?;
    expect_kind(extended, ErrorKind::TermLost, "an extension under a lower fence")?;
    let recorded = old.record_alone(&held.receipt).await;
    expect_kind(recorded, ErrorKind::TermLost, "a lone run recorded under a lower fence")?;
    for verdict in [Verdict::Complete, Verdict::Release, retry(Duration::ZERO), dead_letter("stale")] {
        let settled = try_settle(&old, &held.receipt, verdict).await?;
        expect_kind(settled, ErrorKind::TermLost, "a settlement under a lower fence")?;
    }
    let got = bench.receive_all(&new, 2).await?;
    let crashes: u32 = got.iter().map(|delivery| delivery.crashes).sum();
    let failures: u32 = got.iter().map(|delivery| delivery.failures).sum();
    ensure!((crashes, failures) == (1, 0), "the new term saw {crashes} crashes and {failures} failures");
    ensure!(got.iter().all(|delivery| !delivery.crashed_alone), "a lone run was recorded all the same");
    Ok(())
}

async fn a_waiting_receive_learns_of_its_end(bench: &Bench) -> Checked {
    let queue = bench.queue("overtaken-term").await?;
    let old = term(bench, &queue, 10).await?;
    let receive = bench.receive_within(&old, 1, bench.timing.patience);
    let raise_and_send = async {
        tokio::time::sleep(bench.timing.moment).await;
        raise(bench, &queue, 11).await?;
        bench.send(&queue, "for the new term").await
    };
    let (received, sent) = futures_util::join!(receive, raise_and_send);
    sent?;
    expect_kind(received?, ErrorKind::TermLost, "a receive that waited while a higher fence was raised")
}

async fn a_former_terms_claims_are_free_at_once(bench: &Bench) -> Checked {
    let queue = bench.queue("early-claim").await?;
    let old = term(bench, &queue, 10).await?;
    bench.send_all(&queue, &["a", "b"]).await?;
    let held = bench.receive_all(&old, 2).await?;
    // One of them was finished properly, and is no crash.
    settle(&old, &held[1], Verdict::Release).await?;
    let new = term(bench, &queue, 11).await?;
    let mut got = bench.receive_all(&new, 2).await?;
    got.sort_by_key(text);
    let counts: Vec<_> = got.iter().map(|d| (text(d), d.delivery_count, d.crashes)).collect();
    let expected = [("a".to_owned(), 2, 1), ("b".to_owned(), 1, 0)];
    ensure!(counts == expected, "messages with claims and crashes were {counts:?}, not {expected:?}");
    for delivery in &got {
        settle(&new, delivery, Verdict::Complete).await?;
    }
    Ok(())
}

async fn plain_claims_are_not_free_at_once(bench: &Bench) -> Checked {
    let queue = bench.queue("plain-claim").await?;
    let plain = bench.consumer(&queue).await?;
    bench.send(&queue, "plain").await?;
    let held = bench.receive_one(&plain).await?;
    let singleton = term(bench, &queue, 10).await?;
    bench.receive_nothing(&singleton, "its claim was no earlier term's").await?;
    settle(&plain, &held, Verdict::Complete).await
}

async fn a_guarded_send_needs_its_fence(bench: &Bench) -> Checked {
    let (queue, results) = (bench.queue("guarding").await?, bench.queue("results").await?);
    let consumer = bench.consumer(&results).await?;
    let guarded = |name: &str, fence| {
        let guard = FenceGuard { endpoint: Arc::clone(&queue), fence: Fence::new(fence) };
        bench.message(&results, name).guarded(Some(guard))
    };
    let send = async |message| only(bench.host.sender().send(vec![message]).await);
    expect_kind(send(guarded("no fence yet", 10)).await?, ErrorKind::TermLost, "a send without any fence")?;
    raise(bench, &queue, 10).await?;
    send(guarded("first", 10)).await??;
    raise(bench, &queue, 11).await?;
    let batch = vec![guarded("late", 10), guarded("second", 11), bench.message(&results, "plain")];
    let mut answers = bench.host.sender().send(batch).await;
    ensure!(answers.len() == 3, "3 messages were sent and {} answers came", answers.len());
    expect_kind(answers.remove(0), ErrorKind::TermLost, "a send under a lower fence")?;
    for answer in answers {
        answer?;
    }
    let got = super::bench::texts(&bench.receive_all(&consumer, 3).await?);
    ensure!(got == ["first", "second", "plain"], "{got:?} came");
    bench.expect_empty(&consumer, &results).await
}

async fn a_guarded_cancellation_needs_its_fence(bench: &Bench) -> Checked {
    let (queue, results) = (bench.queue("cancelling").await?, bench.queue("delayed-results").await?);
    let later = bench.message(&results, "later").due(Some(Due::In(LONG)));
    let placed = bench.send_one(later).await?;
    let delay = bench.delay()?;
    let guard = |fence| FenceGuard { endpoint: Arc::clone(&queue), fence: Fence::new(fence) };
    let early = delay.cancel(&placed, Some(&guard(10))).await;
    expect_kind(early, ErrorKind::TermLost, "a cancellation without any fence")?;
    raise(bench, &queue, 10).await?;
    raise(bench, &queue, 11).await?;
    let late = delay.cancel(&placed, Some(&guard(10))).await;
    expect_kind(late, ErrorKind::TermLost, "a cancellation under a lower fence")?;
    ensure!(delay.cancel(&placed, Some(&guard(11))).await?, "the holder could not take a message back");
    Ok(())
}

async fn an_outdated_settlement_sends_nothing(bench: &Bench) -> Checked {
    let (queue, results) = (bench.queue("late-settle").await?, bench.queue("late-results").await?);
    let reader = bench.consumer(&results).await?;
    let old = term(bench, &queue, 10).await?;
    bench.send(&queue, "work").await?;
    let held = bench.receive_one(&old).await?;
    raise(bench, &queue, 11).await?;
    let mut settlement = Settlement::new(held.receipt, Verdict::Complete);
    settlement.outgoing = vec![bench.message(&results, "late result")];
    let answer = only(old.settle(vec![settlement]).await)?;
    expect_kind(answer, ErrorKind::TermLost, "a settlement under a lower fence")?;
    bench.expect_empty(&reader, &results).await
}

async fn a_consumer_needs_a_raised_fence(bench: &Bench) -> Checked {
    let queue = bench.queue("unraised").await?;
    bench.send(&queue, "work").await?;
    let spec = ConsumerSpec::new(Arc::clone(&queue), LONG).fenced(Fence::new(10), LONG);
    // Refused when opened or when it receives, as the store prefers.
    match bench.host.consumer(spec).await {
        Err(refused) => {
            expect_kind::<()>(Err(refused), ErrorKind::TermLost, "opening without a raised fence")
        }
        Ok(consumer) => {
            let received = bench.receive_within(&consumer, 1, bench.timing.patience).await?;
            expect_kind(received, ErrorKind::TermLost, "a receive without a raised fence")
        }
    }
}

async fn fences_of_two_endpoints_are_two(bench: &Bench) -> Checked {
    let one = bench.subscription("fenced", "one").await?;
    let two = bench.subscription("fenced", "two").await?;
    let (first, second) = (term(bench, &one, 10).await?, term(bench, &two, 5).await?);
    raise(bench, &one, 20).await?;
    bench.send(&one, "event").await?;
    bench.receive_one(&second).await?;
    let received = bench.receive_within(&first, 1, bench.timing.patience).await?;
    expect_kind(received, ErrorKind::TermLost, "a receive under a lower fence")
}

async fn fences_are_large_numbers(bench: &Bench) -> Checked {
    const LARGE: u64 = 9_007_199_254_740_993;
    let queue = bench.queue("large-fence").await?;
    let old = term(bench, &queue, LARGE).await?;
    let new = term(bench, &queue, LARGE + 1).await?;
    let received = bench.receive_within(&old, 1, bench.timing.patience).await?;
    expect_kind(received, ErrorKind::TermLost, "a receive under a fence that is lower by one")?;
    raise(bench, &queue, u64::try_from(i64::MAX).unwrap_or(LARGE)).await?;
    let received = bench.receive_within(&new, 1, bench.timing.patience).await?;
    expect_kind(received, ErrorKind::TermLost, "a receive under a lower fence")
}
