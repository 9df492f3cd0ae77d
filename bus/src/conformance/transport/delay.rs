//! Delayed messages. Scenario M36.

use std::time::{Duration, SystemTime};

use super::bench::{Bench, LONG, only, retry, settle, text, texts};
use crate::clock::Timestamp;
use crate::conformance::Checked;
use crate::conformance::case::{cases, ensure};
use crate::contract::{Due, Placed};
use crate::message::Verdict;

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        [Delay] a_delayed_message_comes_when_it_is_due = "A delayed message is available when it is due, not before.";
        [Delay] a_due_time_is_kept_too = "A message may be due at a moment, also one that has passed.";
        [Delay] a_delayed_message_holds_nothing_back = "What is due earlier comes earlier.";
        [Delay] a_cancelled_message_never_comes = "A delayed message can be taken back, once.";
        [Delay] a_delayed_event_is_cancelled_everywhere = "Taking back an event takes back every subscription's copy.";
        [Delay] what_has_become_available_cannot_be_cancelled = "Available, claimed, retried and done messages stay.";
        [Delay] a_foreign_place_cancels_nothing = "A place that was never there cancels nothing, and is no crash.";
        [Delay] a_delayed_message_outlives_its_sender = "What was sent with a delay comes in time though the host that sent it is gone.";
        [Delay] another_host_cancels = "The place of a message can be used by any host.";
    }
}

async fn a_delayed_message_comes_when_it_is_due(bench: &Bench) -> Checked {
    let queue = bench.queue("delayed").await?;
    let consumer = bench.consumer(&queue).await?;
    let before = tokio::time::Instant::now();
    bench.send_one(bench.message(&queue, "later").due(Some(Due::In(bench.timing.lease)))).await?;
    bench.receive_one(&consumer).await?;
    let waited = before.elapsed() + Duration::from_millis(5);
    ensure!(waited >= bench.timing.lease, "a delay of {:?} lasted {waited:?}", bench.timing.lease);
    Ok(())
}

async fn a_due_time_is_kept_too(bench: &Bench) -> Checked {
    let queue = bench.queue("due-at").await?;
    let consumer = bench.consumer(&queue).await?;
    let now = Timestamp::from(SystemTime::now());
    let before = tokio::time::Instant::now();
    let (soon, passed) = (now + bench.timing.lease, Timestamp::from_micros(now.as_micros() - 1_000_000));
    bench.send_one(bench.message(&queue, "soon").due(Some(Due::At(soon)))).await?;
    bench.send_one(bench.message(&queue, "passed").due(Some(Due::At(passed)))).await?;
    let got = texts(&bench.receive_all(&consumer, 2).await?);
    ensure!(got == ["passed", "soon"], "{got:?} came in this order");
    // The wall clock may be slewed meanwhile: half of the time is proof enough that it was waited for.
    ensure!(before.elapsed() * 2 >= bench.timing.lease, "due in {:?}, it came too early", bench.timing.lease);
    Ok(())
}

async fn a_delayed_message_holds_nothing_back(bench: &Bench) -> Checked {
    let queue = bench.queue("overtaken").await?;
    let consumer = bench.consumer(&queue).await?;
    bench.send_one(bench.message(&queue, "in hours").due(Some(Due::In(LONG * 10)))).await?;
    bench.send_one(bench.message(&queue, "soon").due(Some(Due::In(bench.timing.lease)))).await?;
    bench.send(&queue, "now").await?;
    let got = texts(&bench.receive_all(&consumer, 2).await?);
    ensure!(got == ["now", "soon"], "{got:?} came in this order");
    bench.expect_empty(&consumer, &queue).await
}

async fn a_cancelled_message_never_comes(bench: &Bench) -> Checked {
    let queue = bench.queue("cancelled").await?;
    let consumer = bench.consumer(&queue).await?;
    let due = Some(Due::In(bench.timing.lease * 2));
    let cancelled = bench.send_one(bench.message(&queue, "cancelled").due(due)).await?;
    bench.send_one(bench.message(&queue, "kept").due(due)).await?;
    let delay = bench.delay()?;
    ensure!(delay.cancel(&cancelled, None).await?, "a delayed message could not be cancelled");
    ensure!(!delay.cancel(&cancelled, None).await?, "a message was cancelled twice");
    let got = bench.receive_one(&consumer).await?;
    ensure!(text(&got) == "kept", "{:?} came", text(&got));
    bench.expect_empty(&consumer, &queue).await
}

async fn a_delayed_event_is_cancelled_everywhere(bench: &Bench) -> Checked {
    let readers = [bench.subscription("later", "a").await?, bench.subscription("later", "b").await?];
    let due = Some(Due::In(bench.timing.lease * 2));
    let cancelled = bench.send_one(bench.message(&readers[0], "cancelled").due(due)).await?;
    bench.send_one(bench.message(&readers[0], "kept").due(due)).await?;
    ensure!(bench.delay()?.cancel(&cancelled, None).await?, "a delayed event could not be cancelled");
    for reader in &readers {
        let consumer = bench.consumer(reader).await?;
        let got = bench.receive_one(&consumer).await?;
        ensure!(text(&got) == "kept", "{reader} got {:?}", text(&got));
        settle(&consumer, &got, Verdict::Complete).await?;
        bench.receive_nothing(&consumer, "the other event was cancelled").await?;
    }
    Ok(())
}

async fn what_has_become_available_cannot_be_cancelled(bench: &Bench) -> Checked {
    let queue = bench.queue("too-late").await?;
    let consumer = bench.consumer(&queue).await?;
    let delay = bench.delay()?;
    let at_once = bench.send(&queue, "at once").await?;
    ensure!(!delay.cancel(&at_once, None).await?, "an available message was cancelled");
    let got = bench.receive_one(&consumer).await?;
    settle(&consumer, &got, Verdict::Complete).await?;

    let placed =
        bench.send_one(bench.message(&queue, "short").due(Some(Due::In(bench.timing.moment)))).await?;
    let got = bench.receive_one(&consumer).await?;
    ensure!(!delay.cancel(&placed, None).await?, "a claimed message was cancelled");
    settle(&consumer, &got, retry(bench.timing.lease)).await?;
    ensure!(!delay.cancel(&placed, None).await?, "a message that waited for its retry was cancelled");
    let got = bench.receive_one(&consumer).await?;
    settle(&consumer, &got, Verdict::Complete).await?;
    ensure!(!delay.cancel(&placed, None).await?, "a completed message was cancelled");
    Ok(())
}

/// M36.
async fn a_delayed_message_outlives_its_sender(bench: &Bench) -> Checked {
    let queue = bench.queue("left-behind").await?;
    let later = bench.message(&queue, "left behind").due(Some(Due::In(bench.timing.lease)));
    let before = tokio::time::Instant::now();
    only(bench.other_host.sender().send(vec![later]).await)??;
    bench.other_host.close().await;
    let consumer = bench.consumer(&queue).await?;
    let got = bench.receive_one(&consumer).await?;
    let waited = before.elapsed() + Duration::from_millis(5);
    ensure!(text(&got) == "left behind", "{:?} came", text(&got));
    ensure!(waited >= bench.timing.lease, "a delay of {:?} lasted {waited:?}", bench.timing.lease);
    settle(&consumer, &got, Verdict::Complete).await?;
    bench.expect_empty(&consumer, &queue).await
}

async fn a_foreign_place_cancels_nothing(bench: &Bench) -> Checked {
    for place in ["", "1", "nowhere", "queue:a:b:c", "9223372036854775808", "-1", "🦀"] {
        // Refused or not found: anything but a success.
        if let Ok(true) = bench.delay()?.cancel(&Placed::new(place), None).await {
            return Err(crate::conformance::Failure::new(format!("the place {place:?} was cancelled")));
        }
    }
    Ok(())
}

async fn another_host_cancels(bench: &Bench) -> Checked {
    let queue = bench.queue("cancelled-elsewhere").await?;
    let placed = bench.send_one(bench.message(&queue, "later").due(Some(Due::In(LONG)))).await?;
    let words = placed.as_str().to_owned();
    let Some(delay) = bench.other_host.capabilities().delay else {
        return Err(crate::conformance::Failure::new("the second host of the store has no delay"));
    };
    ensure!(delay.cancel(&Placed::new(words), None).await?, "another host could not cancel");
    Ok(())
}
