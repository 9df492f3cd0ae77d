//! Many tasks at once, in parallel where the runtime has threads.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, LONG, expect_kind, ids, retry, texts};
use crate::conformance::case::{cases, ensure};
use crate::conformance::{Checked, Failure};
use crate::contract::{
    Consumer, ConsumerSpec, Fence, FenceClaim, FenceGuard, LockId, Outgoing, Sender, Settlement,
};
use crate::error::ErrorKind;
use crate::message::{MessageId, Verdict};

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        hosts_at_full_speed_lose_and_double_nothing = "Whatever hosts do at once, each message is completed exactly once.";
        a_stop_loses_nothing = "What was claimed when stop fires is returned, not kept until its lease ends.";
        [Fencing] a_raised_fence_stops_what_is_going_on = "Once a fence is raised, no write of a former term is accepted.";
    }
}

const SENT: usize = 400;

/// What the workers of one queue have done together.
#[derive(Default)]
struct Work {
    completed: Mutex<HashMap<MessageId, usize>>,
    done: AtomicUsize,
}

async fn hosts_at_full_speed_lose_and_double_nothing(bench: &Bench) -> Checked {
    let queue = bench.queue("full-speed").await?;
    let work = Arc::new(Work::default());
    let mut tasks = JoinSet::new();
    for number in 0..4 {
        let host = if number % 2 == 0 { &bench.host } else { &bench.other_host };
        let messages = (0..SENT / 4).map(|_| bench.message(&queue, "work")).collect();
        tasks.spawn(produce(host.sender(), messages));
        let consumer = host.consumer(ConsumerSpec::new(Arc::clone(&queue), LONG)).await?;
        tasks.spawn(consume(consumer, Arc::clone(&work), number));
    }
    join(bench, tasks).await?;
    let completed = work.completed.lock().clone();
    ensure!(completed.len() == SENT, "of {SENT} messages {} were completed", completed.len());
    let twice = completed.values().filter(|times| **times > 1).count();
    ensure!(twice == 0, "{twice} messages were completed more than once");
    bench.expect_empty(&bench.consumer(&queue).await?, &queue).await
}

async fn produce(sender: Arc<dyn Sender>, messages: Vec<Outgoing>) -> Checked {
    for message in messages {
        for answer in sender.send(vec![message]).await {
            answer?;
        }
    }
    Ok(())
}

/// Receives and settles, one in three at its second try, one in five after a release.
async fn consume(consumer: Arc<dyn Consumer>, work: Arc<Work>, number: usize) -> Checked {
    let mut turn = number;
    while work.done.load(Ordering::SeqCst) < SENT {
        let stop = CancellationToken::new();
        let mut receive = consumer.receive(7, &stop);
        let deliveries = tokio::select! {
            received = &mut receive => received?,
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                stop.cancel();
                receive.await?
            }
        };
        let ids = ids(&deliveries);
        let mut settlements = Vec::new();
        for delivery in deliveries {
            turn += 1;
            let verdict = match delivery.delivery_count {
                1 if turn.is_multiple_of(3) => retry(Duration::ZERO),
                1 if turn.is_multiple_of(5) => Verdict::Release,
                _ => Verdict::Complete,
            };
            settlements.push(Settlement::new(delivery.receipt, verdict));
        }
        let complete: Vec<_> =
            settlements.iter().map(|settlement| matches!(settlement.verdict, Verdict::Complete)).collect();
        let answers = consumer.settle(settlements).await;
        for ((id, answer), complete) in ids.into_iter().zip(answers).zip(complete) {
            answer?;
            if complete {
                *work.completed.lock().entry(id).or_default() += 1;
                work.done.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    Ok(())
}

/// Waits for all tasks, and fails with the first failure.
async fn join(bench: &Bench, mut tasks: JoinSet<Checked>) -> Checked {
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(|error| Failure::new(format!("a task ended with {error}")))??;
        }
        Ok(())
    };
    let patience = bench.timing.patience * 3;
    match tokio::time::timeout(patience, all).await {
        Ok(result) => result,
        Err(_) => Err(Failure::new(format!("messages were still missing after {patience:?}"))),
    }
}

async fn a_stop_loses_nothing(bench: &Bench) -> Checked {
    const COUNT: usize = 60;
    let queue = bench.queue("stop-midway").await?;
    let consumer = bench.other_consumer(&queue).await?;
    let messages = (0..COUNT).map(|_| bench.message(&queue, "sent meanwhile")).collect();
    let producer = tokio::spawn(produce(bench.host.sender(), messages));
    let mut got = std::collections::HashSet::new();
    let deadline = tokio::time::Instant::now() + bench.timing.patience;
    let mut turn = 0;
    while got.len() < COUNT {
        let now = tokio::time::Instant::now();
        ensure!(
            now < deadline,
            "{} of {COUNT} messages came, with {turn} receives that were stopped",
            got.len()
        );
        // Stopped sooner and later, so that some stop falls between the claim and the answer.
        turn += 1;
        let time = bench.timing.moment / 25 * (turn % 7);
        got.extend(ids(&bench.receive_within(&consumer, 3, time).await??));
    }
    producer.await.map_err(|error| Failure::new(format!("the producer ended with {error}")))?
}

/// What a former term did, until it was told that it is over.
#[derive(Default)]
struct FormerTerm {
    raised: AtomicBool,
    accepted: AtomicUsize,
}

async fn a_raised_fence_stops_what_is_going_on(bench: &Bench) -> Checked {
    let (queue, results) = (bench.queue("going-on").await?, bench.queue("going-on-results").await?);
    let fencing = bench.fencing()?;
    let claim = |fence| {
        let lock = LockId::from("queue/going-on");
        FenceClaim::new(Arc::clone(&queue), "conformance:", &lock, Fence::new(fence), LONG)
    };
    let reader = bench.consumer(&results).await?;
    let mut expected = 0;
    for term in 1..=5 {
        fencing.raise(claim(term)).await?;
        let former = Arc::new(FormerTerm::default());
        let mut tasks = JoinSet::new();
        for _ in 0..3 {
            let guard = FenceGuard { endpoint: Arc::clone(&queue), fence: Fence::new(term) };
            let message = |_| bench.message(&results, "written").guarded(Some(guard.clone()));
            let messages = (0..2000).map(message).collect();
            tasks.spawn(write(bench.host.sender(), messages, Arc::clone(&former)));
        }
        while former.accepted.load(Ordering::SeqCst) < 5 {
            tokio::task::yield_now().await;
        }
        fencing.raise(claim(term + 1)).await?;
        former.raised.store(true, Ordering::SeqCst);
        join(bench, tasks).await?;
        expected += former.accepted.load(Ordering::SeqCst);
    }
    let got = texts(&bench.receive_all(&reader, expected).await?);
    ensure!(got.len() == expected, "{expected} writes were accepted and {} are there", got.len());
    bench.expect_empty(&reader, &results).await
}

/// Writes under a fence until that is refused; fails if a write that began after the next was raised is accepted.
async fn write(sender: Arc<dyn Sender>, messages: Vec<Outgoing>, term: Arc<FormerTerm>) -> Checked {
    for message in messages {
        let began_late = term.raised.load(Ordering::SeqCst);
        for answer in sender.send(vec![message]).await {
            match answer {
                Ok(_) if began_late => {
                    return Err(Failure::new(
                        "a write that began after the next fence was raised was accepted",
                    ));
                }
                Ok(_) => drop(term.accepted.fetch_add(1, Ordering::SeqCst)),
                Err(lost) => return expect_kind::<()>(Err(lost), ErrorKind::TermLost, "a late write"),
            }
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}
