//! Strict order.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{Bench, LONG, dead_letter, retry, settle, text, try_extend};
use crate::conformance::Checked;
use crate::conformance::case::{cases, ensure};
use crate::contract::{Consumer, ConsumerSpec, Due};
use crate::message::{Endpoint, Verdict};
use crate::settings::Order;

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        [StrictOrder] a_retry_holds_the_queue_back = "In strict order nothing overtakes a message that waits for its retry.";
        [StrictOrder] one_message_is_in_flight_at_a_time = "In strict order nothing is claimed while something is.";
        [StrictOrder] the_queue_goes_on_when_its_head_is_done = "Done or dead, the head holds back nothing more.";
        [StrictOrder] a_released_head_comes_first_again = "In strict order a released message stays the first.";
        [StrictOrder] a_lapsed_head_comes_first_again = "In strict order a message whose claim lapsed stays the first.";
        [StrictOrder] a_head_released_elsewhere_comes_first_again = "In strict order a message released by another host is the first, too.";
        [StrictOrder, Delay] a_delayed_message_does_not_hold_back = "What has not become due yet holds nothing back.";
        relaxed_order_goes_on_during_a_retry = "By default the next message is processed while one waits for its retry.";
    }
}

async fn strict(bench: &Bench, queue: &Arc<Endpoint>, lease: Duration) -> Checked<Arc<dyn Consumer>> {
    bench.consumer_with(ConsumerSpec::new(Arc::clone(queue), lease).ordered(Order::Strict)).await
}

async fn expect_next(bench: &Bench, consumer: &Arc<dyn Consumer>, name: &str) -> Checked {
    let got = bench.receive_one(consumer).await?;
    ensure!(text(&got) == name, "{name} was next, and {:?} came", text(&got));
    settle(consumer, &got, Verdict::Complete).await
}

async fn a_retry_holds_the_queue_back(bench: &Bench) -> Checked {
    let queue = bench.queue("held-back").await?;
    let consumer = strict(bench, &queue, LONG).await?;
    bench.send_all(&queue, &["a", "b"]).await?;
    let got = bench.receive_one(&consumer).await?;
    settle(&consumer, &got, retry(bench.timing.lease)).await?;
    bench.receive_nothing_for(&consumer, bench.timing.lease / 2, "a waits for its retry").await?;
    expect_next(bench, &consumer, "a").await?;
    expect_next(bench, &consumer, "b").await
}

async fn one_message_is_in_flight_at_a_time(bench: &Bench) -> Checked {
    let queue = bench.queue("one-at-a-time").await?;
    let consumer = strict(bench, &queue, LONG).await?;
    bench.send_all(&queue, &["a", "b", "c"]).await?;
    let got = bench.receive(&consumer, 10).await?;
    ensure!(got.len() == 1 && text(&got[0]) == "a", "of a, b and c {} were claimed at once", got.len());
    bench.receive_nothing(&consumer, "a is in flight").await?;
    settle(&consumer, &got[0], Verdict::Complete).await?;
    expect_next(bench, &consumer, "b").await
}

async fn the_queue_goes_on_when_its_head_is_done(bench: &Bench) -> Checked {
    let queue = bench.queue("goes-on").await?;
    let consumer = strict(bench, &queue, LONG).await?;
    bench.send_all(&queue, &["a", "b", "c"]).await?;
    let got = bench.receive_one(&consumer).await?;
    settle(&consumer, &got, retry(Duration::ZERO)).await?;
    let got = bench.receive_one(&consumer).await?;
    ensure!(text(&got) == "a", "a was next, and {:?} came", text(&got));
    settle(&consumer, &got, dead_letter("hopeless")).await?;
    expect_next(bench, &consumer, "b").await?;
    expect_next(bench, &consumer, "c").await
}

async fn a_released_head_comes_first_again(bench: &Bench) -> Checked {
    let queue = bench.queue("head-released").await?;
    let consumer = strict(bench, &queue, LONG).await?;
    bench.send_all(&queue, &["a", "b"]).await?;
    let got = bench.receive_one(&consumer).await?;
    settle(&consumer, &got, Verdict::Release).await?;
    expect_next(bench, &consumer, "a").await?;
    expect_next(bench, &consumer, "b").await
}

async fn a_lapsed_head_comes_first_again(bench: &Bench) -> Checked {
    let queue = bench.queue("head-lapsed").await?;
    bench.send_all(&queue, &["a", "b"]).await?;
    let crashed = strict(bench, &queue, bench.timing.lease).await?;
    bench.receive_one(&crashed).await?;
    let next = strict(bench, &queue, LONG).await?;
    expect_next(bench, &next, "a").await?;
    expect_next(bench, &next, "b").await
}

async fn a_head_released_elsewhere_comes_first_again(bench: &Bench) -> Checked {
    let queue = bench.queue("head-elsewhere").await?;
    bench.send_all(&queue, &["a", "b"]).await?;
    let first = strict(bench, &queue, LONG).await?;
    let spec = ConsumerSpec::new(Arc::clone(&queue), LONG).ordered(Order::Strict);
    let second = bench.other_host.consumer(spec).await?;
    // The first consumer has already passed the head, when the head comes back without it.
    let mut lapsed = bench.receive_one(&first).await?;
    try_extend(&first, &mut lapsed.receipt, bench.timing.moment).await??;
    let got = bench.receive_one(&second).await?;
    settle(&second, &got, Verdict::Release).await?;
    expect_next(bench, &first, "a").await?;
    expect_next(bench, &first, "b").await
}

async fn a_delayed_message_does_not_hold_back(bench: &Bench) -> Checked {
    let queue = bench.queue("not-due").await?;
    let consumer = strict(bench, &queue, LONG).await?;
    bench.send_one(bench.message(&queue, "in hours").due(Some(Due::In(LONG * 10)))).await?;
    bench.send(&queue, "now").await?;
    expect_next(bench, &consumer, "now").await
}

async fn relaxed_order_goes_on_during_a_retry(bench: &Bench) -> Checked {
    let queue = bench.queue("relaxed").await?;
    let consumer = bench.consumer(&queue).await?;
    bench.send_all(&queue, &["a", "b"]).await?;
    let got = bench.receive_one(&consumer).await?;
    settle(&consumer, &got, retry(LONG)).await?;
    expect_next(bench, &consumer, "b").await
}
