//! What a host costs that has nothing to do, and how soon it hears of a message.

use std::time::{Duration, Instant};

use bus::message::Verdict;
use tokio_util::sync::CancellationToken;

use crate::store::{PREFIX, Store, command, open, receive, settle};

/// With ten queues, less than five requests a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_host_asks_seldom() {
    let queues: Vec<String> = (0..10).map(|number| format!("idle-{number}")).collect();
    let names: Vec<&str> = queues.iter().map(String::as_str).collect();
    let Some(store) = Store::with(&names).await else { return };
    let stop = CancellationToken::new();
    let mut waiting = Vec::new();
    for queue in &names {
        let (consumer, stop) = (store.consumer(queue).await, stop.clone());
        waiting.push(tokio::spawn(async move { consumer.receive(1, &stop).await }));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (before, begun) = (store.server.messages_in(), Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let rate = (store.server.messages_in() - before) as f64 / begun.elapsed().as_secs_f64();
    stop.cancel();
    for waiting in waiting {
        assert!(waiting.await.unwrap().unwrap().is_empty());
    }
    assert!(rate < 5.0, "an idle host with ten queues sent {rate} messages a second");
    assert!(rate > 0.5, "nobody asked: a pull that is never renewed dies unseen");
}

/// M15, M26: from one host's send to another's delivery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone_a_message_reaches_a_waiting_consumer_within_5_ms() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let other = open(&store.server.url(PREFIX)).await.unwrap();
    let consumer = store.consumer("jobs").await;
    let mut latencies = Vec::new();
    for _ in 0..51 {
        let waiting = tokio::spawn({
            let consumer = consumer.clone();
            async move { (receive(&consumer, 1).await.remove(0), Instant::now()) }
        });
        // Long enough for the consumer to have looked in vain and to wait.
        tokio::time::sleep(Duration::from_millis(30)).await;
        let sent = Instant::now();
        other.sender().send(vec![command("jobs", "now")]).await.remove(0).unwrap();
        let (delivery, received) = waiting.await.unwrap();
        latencies.push(received - sent);
        settle(&consumer, &delivery.receipt, Verdict::Complete).await.unwrap();
    }
    latencies.sort();
    assert!(latencies[25] < Duration::from_millis(5), "{latencies:?}");
}
