//! Dropped futures, closed hosts, reopened stores.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::poll_immediate;
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, expect_kind, ids, settle, text};
use crate::conformance::Checked;
use crate::conformance::case::{cases, ensure};
use crate::contract::{ConsumerSpec, Settlement};
use crate::error::ErrorKind;
use crate::message::Verdict;

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        a_send_dropped_at_once_sends_nothing = "Dropping a send before the store was asked withdraws its messages.";
        a_send_dropped_midway_disturbs_nobody = "A dropped send is sent whole, at most once, and others go on.";
        a_dropped_receive_loses_nothing = "What a dropped receive had claimed comes back when its lease ends.";
        a_dropped_settle_does_it_or_not = "A dropped settle took effect or did not: the message is done or comes back.";
        a_closed_host_says_so = "After close, calls answer that the host is closed, and other hosts go on.";
        a_closed_host_ends_its_receives = "Closing ends the receives that wait.";
        messages_outlive_the_host_that_sent_them = "What was confirmed is there for a host that opens later.";
    }
}

async fn a_send_dropped_at_once_sends_nothing(bench: &Bench) -> Checked {
    let queue = bench.queue("withdrawn").await?;
    let consumer = bench.consumer(&queue).await?;
    let sender = bench.host.sender();
    drop(sender.send(vec![bench.message(&queue, "withdrawn")]));
    bench.expect_empty(&consumer, &queue).await
}

async fn a_send_dropped_midway_disturbs_nobody(bench: &Bench) -> Checked {
    let queue = bench.queue("midway").await?;
    let consumer = bench.consumer(&queue).await?;
    let sender = bench.host.sender();
    let mut dropped = HashSet::new();
    let mut kept = Vec::new();
    for _ in 0..20 {
        let lost = bench.message(&queue, "dropped");
        let sure = bench.message(&queue, "kept");
        dropped.insert(lost.envelope.id);
        kept.push(sure.envelope.id);
        let mut abandoned = sender.send(vec![lost]);
        let beside = sender.send(vec![sure]);
        let _ = poll_immediate(&mut abandoned).await;
        let (_, answers) = futures_util::join!(async { drop(abandoned) }, beside);
        for answer in answers {
            answer?;
        }
    }
    let last = bench.message(&queue, "last");
    let last_id = last.envelope.id;
    bench.send_one(last).await?;
    let mut got = Vec::new();
    while !got.contains(&last_id) {
        got.extend(ids(&bench.receive(&consumer, 50).await?));
    }
    let distinct: HashSet<_> = got.iter().copied().collect();
    ensure!(distinct.len() == got.len(), "{} messages came {} times", distinct.len(), got.len());
    let kept_in_order: Vec<_> =
        got.iter().copied().filter(|id| !dropped.contains(id) && *id != last_id).collect();
    ensure!(kept_in_order == kept, "of {} kept messages {} came", kept.len(), kept_in_order.len());
    Ok(())
}

async fn a_dropped_receive_loses_nothing(bench: &Bench) -> Checked {
    const COUNT: usize = 12;
    let queue = bench.queue("dropped-receive").await?;
    let spec = ConsumerSpec::new(Arc::clone(&queue), bench.timing.lease);
    let fickle = bench.consumer_with(spec).await?;
    let steady = bench.other_consumer(&queue).await?;
    bench.send_all(&queue, &["precious"; COUNT]).await?;
    let stop = CancellationToken::new();
    for turn in 0..COUNT {
        let mut receive = fickle.receive(1, &stop);
        // Dropped before it began, at its first waiting point, or while it waits for the store.
        match turn % 3 {
            0 => drop(receive),
            1 => drop(poll_immediate(receive).await),
            _ => drop(tokio::time::timeout(bench.timing.moment / 16, &mut receive).await),
        }
    }
    let got: HashSet<_> = ids(&bench.receive_all(&steady, COUNT).await?).into_iter().collect();
    ensure!(got.len() == COUNT, "of {COUNT} messages {} came back", got.len());
    Ok(())
}

async fn a_dropped_settle_does_it_or_not(bench: &Bench) -> Checked {
    let queue = bench.queue("dropped-settle").await?;
    let spec = ConsumerSpec::new(Arc::clone(&queue), bench.timing.lease);
    let consumer = bench.consumer_with(spec).await?;
    bench.send(&queue, "unsettled").await?;
    let got = bench.receive_one(&consumer).await?;
    drop(consumer.settle(vec![Settlement::new(got.receipt.clone(), Verdict::Complete)]));
    // Never polled, so that it did not take effect.
    let again = bench.receive_one(&consumer).await?;
    ensure!(again.envelope.id == got.envelope.id && again.crashes == 1, "{again:?} came");
    let _ = poll_immediate(consumer.settle(vec![Settlement::new(again.receipt, Verdict::Complete)])).await;
    let third = bench.receive_within(&consumer, 1, bench.timing.lease * 2).await??;
    for delivery in &third {
        ensure!(delivery.envelope.id == got.envelope.id, "{:?} came", text(delivery));
        settle(&consumer, delivery, Verdict::Complete).await?;
    }
    bench.expect_empty(&consumer, &queue).await
}

async fn a_closed_host_says_so(bench: &Bench) -> Checked {
    let queue = bench.queue("closed").await?;
    let consumer = bench.consumer(&queue).await?;
    let other = bench.other_consumer(&queue).await?;
    bench.send_all(&queue, &["a", "b"]).await?;
    let mut held = bench.receive_one(&consumer).await?;
    let sender = bench.host.sender();
    bench.host.close().await;
    for answer in sender.send(vec![bench.message(&queue, "late")]).await {
        expect_kind(answer, ErrorKind::Closed, "a send after close")?;
    }
    let received = bench.receive_within(&consumer, 1, bench.timing.patience).await?;
    expect_kind(received, ErrorKind::Closed, "a receive after close")?;
    for answer in consumer.extend(std::slice::from_mut(&mut held.receipt), bench.timing.lease).await {
        expect_kind(answer, ErrorKind::Closed, "an extension after close")?;
    }
    for answer in consumer.settle(vec![Settlement::new(held.receipt, Verdict::Complete)]).await {
        expect_kind(answer, ErrorKind::Closed, "a settlement after close")?;
    }
    let got = bench.receive_one(&other).await?;
    ensure!(text(&got) == "b", "another host got {:?}", text(&got));
    settle(&other, &got, Verdict::Complete).await?;
    bench.host.close().await;
    Ok(())
}

async fn a_closed_host_ends_its_receives(bench: &Bench) -> Checked {
    let queue = bench.queue("closing").await?;
    let consumer = bench.consumer(&queue).await?;
    let receive = bench.receive_within(&consumer, 1, bench.timing.patience);
    let close = async {
        tokio::time::sleep(bench.timing.moment).await;
        bench.host.close().await;
    };
    let (received, ()) = futures_util::join!(receive, close);
    expect_kind(received?, ErrorKind::Closed, "a receive that waited when its host was closed")
}

async fn messages_outlive_the_host_that_sent_them(bench: &Bench) -> Checked {
    let queue = bench.queue("outliving").await?;
    bench.send(&queue, "left behind").await?;
    bench.host.close().await;
    let consumer = bench.other_consumer(&queue).await?;
    let got = bench.receive_one(&consumer).await?;
    ensure!(text(&got) == "left behind", "{:?} came", text(&got));
    Ok(())
}
