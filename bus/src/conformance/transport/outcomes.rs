//! Verdicts, what they do and what they count. Scenarios M18, M19, M31.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{Bench, dead_letter, envelope, expect_kind, expire, only, retry, settle, text};
use crate::conformance::Checked;
use crate::conformance::case::{cases, ensure};
use crate::contract::{Consumer, ConsumerSpec, Outgoing, Settlement};
use crate::error::{Error, ErrorKind};
use crate::message::{Delivery, Endpoint, Verdict};

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        a_retry_comes_back_when_its_time_has_come = "A message to be retried comes back after its time, not before.";
        a_retry_counts_a_failure = "Failures and claims are counted, and no crash.";
        a_release_is_no_attempt = "A released message is available at once, as if it had not been claimed.";
        [KeptOrder] a_released_message_keeps_its_place = "A released message stands before those that were sent after it.";
        crashes_are_counted_apart_from_failures = "A claim without an outcome is a crash, not a failure.";
        a_crash_while_alone_is_remembered = "A crash in a run that was recorded as alone is told at the next claim.";
        a_failure_while_alone_forgets_the_crashes = "A failed attempt that was made alone forgets the crashes.";
        a_release_ends_a_run_alone = "After a release, a later crash is not one of the lone run.";
        outgoing_goes_with_its_settlement = "What a settlement sends is sent if and only if it takes effect.";
        [Inspect] a_dead_letter_says_why = "A dead letter keeps message, reason and error.";
        [Inspect] reasons_and_errors_may_be_any_text = "A reason and an error may have any character in them, NUL too, for which U+FFFD may stand.";
        [Inspect] an_expired_message_is_dead_lettered = "A message past its time to live is dead-lettered as expired.";
    }
}

async fn a_retry_comes_back_when_its_time_has_come(bench: &Bench) -> Checked {
    let queue = bench.queue("retried").await?;
    let consumer = bench.consumer(&queue).await?;
    bench.send(&queue, "again").await?;
    let got = bench.receive_one(&consumer).await?;
    let before = tokio::time::Instant::now();
    settle(&consumer, &got, retry(bench.timing.lease)).await?;
    let again = bench.receive_one(&consumer).await?;
    let after = before.elapsed() + Duration::from_millis(5);
    ensure!(again.envelope.id == got.envelope.id, "{:?} came", text(&again));
    ensure!(after >= bench.timing.lease, "a retry after {:?} came after {after:?}", bench.timing.lease);
    Ok(())
}

async fn a_retry_counts_a_failure(bench: &Bench) -> Checked {
    let queue = bench.queue("failing").await?;
    let consumer = bench.consumer(&queue).await?;
    bench.send(&queue, "again").await?;
    for attempt in 1..=4 {
        let got = bench.receive_one(&consumer).await?;
        let counts = (got.delivery_count, got.failures, got.crashes);
        ensure!(
            counts == (attempt, attempt - 1, 0),
            "claims, failures and crashes in attempt {attempt} were {counts:?}"
        );
        settle(&consumer, &got, retry(Duration::ZERO)).await?;
    }
    Ok(())
}

async fn a_release_is_no_attempt(bench: &Bench) -> Checked {
    let queue = bench.queue("released").await?;
    let (one, two) = (bench.consumer(&queue).await?, bench.other_consumer(&queue).await?);
    bench.send(&queue, "interrupted").await?;
    for _ in 0..3 {
        let got = bench.receive_one(&one).await?;
        settle(&one, &got, Verdict::Release).await?;
    }
    let got = bench.receive_one(&two).await?;
    let counts = (got.delivery_count, got.failures, got.crashes);
    ensure!(counts == (1, 0, 0), "claims, failures and crashes after three releases were {counts:?}");
    Ok(())
}

async fn a_released_message_keeps_its_place(bench: &Bench) -> Checked {
    let queue = bench.queue("place").await?;
    let consumer = bench.consumer(&queue).await?;
    bench.send_all(&queue, &["a", "b", "c"]).await?;
    let first = bench.receive_one(&consumer).await?;
    settle(&consumer, &first, Verdict::Release).await?;
    let again = bench.receive_one(&consumer).await?;
    ensure!(text(&again) == "a", "a was released, and {:?} came first", text(&again));
    Ok(())
}

/// Claims the queue's only message for the short lease.
async fn claim_shortly(bench: &Bench, queue: &Arc<Endpoint>) -> Checked<(Arc<dyn Consumer>, Delivery)> {
    let spec = ConsumerSpec::new(Arc::clone(queue), bench.timing.lease);
    let consumer = bench.consumer_with(spec).await?;
    let got = bench.receive_one(&consumer).await?;
    Ok((consumer, got))
}

async fn crashes_are_counted_apart_from_failures(bench: &Bench) -> Checked {
    let queue = bench.queue("crashing").await?;
    bench.send(&queue, "fails and crashes").await?;
    let (consumer, got) = claim_shortly(bench, &queue).await?;
    settle(&consumer, &got, retry(Duration::ZERO)).await?;
    claim_shortly(bench, &queue).await?;
    claim_shortly(bench, &queue).await?;
    let (consumer, got) = claim_shortly(bench, &queue).await?;
    let counts = (got.delivery_count, got.failures, got.crashes);
    ensure!(
        counts == (4, 1, 2),
        "claims, failures and crashes after 1 failure and 2 crashes were {counts:?}"
    );
    // An ordinary failure forgets no crash.
    settle(&consumer, &got, retry(Duration::ZERO)).await?;
    let (_, got) = claim_shortly(bench, &queue).await?;
    ensure!(got.crashes == 2, "after an ordinary failure {} crashes were left of 2", got.crashes);
    Ok(())
}

async fn a_crash_while_alone_is_remembered(bench: &Bench) -> Checked {
    let queue = bench.queue("alone").await?;
    bench.send(&queue, "poison").await?;
    claim_shortly(bench, &queue).await?;
    let (consumer, got) = claim_shortly(bench, &queue).await?;
    ensure!(!got.crashed_alone, "an ordinary crash was told as one of a lone run");
    consumer.record_alone(&got.receipt).await?;
    let (_, got) = claim_shortly(bench, &queue).await?;
    ensure!(got.crashed_alone, "a crash of a lone run was not told at the next claim");
    ensure!(got.crashes == 2, "after two crashes {} were counted", got.crashes);
    Ok(())
}

async fn a_failure_while_alone_forgets_the_crashes(bench: &Bench) -> Checked {
    let queue = bench.queue("innocent").await?;
    bench.send(&queue, "innocent").await?;
    claim_shortly(bench, &queue).await?;
    let (consumer, got) = claim_shortly(bench, &queue).await?;
    consumer.record_alone(&got.receipt).await?;
    settle(&consumer, &got, retry(Duration::ZERO)).await?;
    let (_, got) = claim_shortly(bench, &queue).await?;
    ensure!(
        (got.crashes, got.crashed_alone, got.failures) == (0, false, 1),
        "crashes, crashed alone and failures after a lone failure were {:?}",
        (got.crashes, got.crashed_alone, got.failures)
    );
    let (_, got) = claim_shortly(bench, &queue).await?;
    ensure!(!got.crashed_alone, "a crash after the lone run was told as one of it");
    Ok(())
}

async fn a_release_ends_a_run_alone(bench: &Bench) -> Checked {
    let queue = bench.queue("alone-released").await?;
    bench.send(&queue, "interrupted").await?;
    let (consumer, got) = claim_shortly(bench, &queue).await?;
    consumer.record_alone(&got.receipt).await?;
    settle(&consumer, &got, Verdict::Release).await?;
    claim_shortly(bench, &queue).await?;
    let (_, got) = claim_shortly(bench, &queue).await?;
    ensure!(
        !got.crashed_alone && got.crashes == 1,
        "an ordinary crash was told as one of a released lone run"
    );
    Ok(())
}

async fn outgoing_goes_with_its_settlement(bench: &Bench) -> Checked {
    let (queue, replies) = (bench.queue("asked").await?, bench.queue("replies").await?);
    let (consumer, reader) = (bench.consumer(&queue).await?, bench.consumer(&replies).await?);
    bench.send(&queue, "question").await?;
    let got = bench.receive_one(&consumer).await?;
    let mut settlement = Settlement::new(got.receipt, Verdict::Complete);
    settlement.outgoing = vec![bench.message(&replies, "answer")];
    only(consumer.settle(vec![settlement.clone()]).await)??;
    let answer = bench.receive_one(&reader).await?;
    ensure!(text(&answer) == "answer", "{:?} came", text(&answer));
    settlement.outgoing = vec![bench.message(&replies, "a second answer")];
    expect_kind(only(consumer.settle(vec![settlement]).await)?, ErrorKind::ReceiptLost, "settling twice")?;
    bench.expect_empty(&reader, &replies).await
}

async fn a_dead_letter_says_why(bench: &Bench) -> Checked {
    let queue = bench.queue("dead").await?;
    let consumer = bench.consumer(&queue).await?;
    bench.send(&queue, "hopeless").await?;
    let first = bench.receive_one(&consumer).await?;
    settle(&consumer, &first, retry(Duration::ZERO)).await?;
    let got = bench.receive_one(&consumer).await?;
    settle(&consumer, &got, dead_letter("no such tenant")).await?;
    bench.expect_empty(&consumer, &queue).await?;
    let dead = only(bench.dead(&queue).await?)?;
    ensure!(dead.envelope == got.envelope, "{:?} is dead, and {:?} was sent", dead.envelope, got.envelope);
    ensure!(dead.endpoint == *queue, "it is said to be of {}", dead.endpoint);
    ensure!(dead.reason == "no such tenant", "its reason is {:?}", dead.reason);
    ensure!(dead.error.as_ref().is_some_and(|e| e.contains("never work")), "its error is {:?}", dead.error);
    ensure!(dead.delivery_count == 2, "it had been claimed twice, and says {}", dead.delivery_count);
    Ok(())
}

/// M31.
async fn reasons_and_errors_may_be_any_text(bench: &Bench) -> Checked {
    const ANY: &str = "before \0 🦀 \u{7f} \n ' \" \\ % after";
    let queue = bench.queue("any-text").await?;
    let consumer = bench.consumer(&queue).await?;
    bench.send(&queue, "hopeless").await?;
    let error = || Error::new(ErrorKind::Handler, ANY);
    let first = bench.receive_one(&consumer).await?;
    settle(&consumer, &first, Verdict::Retry { after: Some(Duration::ZERO), error: error() }).await?;
    let got = bench.receive_one(&consumer).await?;
    settle(&consumer, &got, Verdict::DeadLetter { reason: ANY.to_owned(), error: Some(error()) }).await?;
    let dead = only(bench.dead(&queue).await?)?;
    let wanted = ANY.replace('\0', "\u{fffd}");
    let reason = dead.reason.replace('\0', "\u{fffd}");
    ensure!(reason == wanted, "its reason is {:?}", dead.reason);
    let said = dead.error.clone().unwrap_or_default().replace('\0', "\u{fffd}");
    ensure!(said.contains(&wanted), "its error is {:?}", dead.error);
    Ok(())
}

async fn an_expired_message_is_dead_lettered(bench: &Bench) -> Checked {
    let queue = bench.queue("expired").await?;
    let consumer = bench.consumer(&queue).await?;
    let mut stale = envelope("stale");
    expire(&mut stale);
    let mut fresh = envelope("fresh");
    fresh.time_to_live = Some(Duration::from_secs(36_000));
    for message in [&stale, &fresh] {
        bench.send_one(Outgoing::new(queue.target(), message.clone())).await?;
    }
    let got = bench.receive_one(&consumer).await?;
    ensure!(got.envelope.id == fresh.id, "{:?} was delivered", text(&got));
    bench.expect_empty(&consumer, &queue).await?;
    let dead = only(bench.dead(&queue).await?)?;
    ensure!(dead.envelope.id == stale.id, "another message is dead");
    ensure!(dead.reason == "expired", "its reason is {:?}", dead.reason);
    Ok(())
}
