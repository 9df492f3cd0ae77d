//! What a consumer that finds nothing costs, and how long a message waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::backend::azure_storage::StorageQueues;
use bus::contract::{ConsumerSpec, Transport};
use bus_tests::by_hand::endpoint;
use bus_tests::wait::in_time;
use tokio_util::sync::CancellationToken;

use crate::bench::{LONG, Pattern, bench, claims, next};

/// As documented: with `poll=1s` 3 600 calls an hour, a quarter more or less each time.
#[tokio::test]
async fn an_idle_consumer_asks_as_often_as_documented_and_asks_nothing_else() {
    const POLL: Duration = Duration::from_secs(1);
    const WATCHED: Duration = Duration::from_secs(12);
    let bench = bench!();
    let proxy = bench.proxy();
    let connection_string = bench.azurite.connection_string_at(bench.azurite.blob_endpoint(), proxy.url());
    let queues = StorageQueues::from_connection_string(&connection_string, &bench.prefix).unwrap();
    let queues = queues.poll_every(POLL);
    queues.prepare(&[(*endpoint("work")).clone()]).await.unwrap();
    let consumer = queues.consumer(ConsumerSpec::new(endpoint("work"), LONG)).await.unwrap();
    let stop = CancellationToken::new();
    let waiting = consumer.receive(10, &stop);
    let watching = async {
        // At first it asks more often.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (asked, all) = (proxy.seen(&claims()).len(), proxy.seen(&Pattern::any()).len());
        tokio::time::sleep(WATCHED).await;
        let (asked, all) = (proxy.seen(&claims()).len() - asked, proxy.seen(&Pattern::any()).len() - all);
        stop.cancel();
        (asked, all)
    };
    let (received, (asked, all)) = futures_util::join!(waiting, watching);
    assert!(received.unwrap().is_empty());
    assert_eq!(asked, all, "nothing but claims");
    let an_hour = asked as u64 * 3600 / WATCHED.as_secs();
    // A quarter of a pause less, and one at each end; a slow machine asks less often.
    assert!(an_hour <= 3600 * 4 / 3 + 600, "{an_hour} calls an hour");
    assert!(asked >= 4, "it asked {asked} times in {WATCHED:?}");
}

/// What another host sends waits for the next question: `poll` and a quarter at the most.
#[tokio::test]
async fn a_message_of_another_host_waits_for_the_poll_and_no_longer() {
    const POLL: Duration = Duration::from_secs(2);
    let bench = bench!();
    let sender = bench.host().await;
    let connection_string = bench.azurite.connection_string();
    let queues = StorageQueues::from_connection_string(&connection_string, &bench.prefix).unwrap();
    let queues = Arc::new(queues.poll_every(POLL));
    let consumer = queues.consumer(ConsumerSpec::new(endpoint("work"), LONG)).await.unwrap();
    let receiving = tokio::spawn(async move {
        let got = next(&consumer).await;
        (got, Instant::now())
    });
    // Until its pauses are the longest.
    tokio::time::sleep(POLL * 4).await;
    sender.send("late").await;
    let sent = Instant::now();
    let (_, received) = in_time("it is received", receiving).await.unwrap();
    let waited = received.saturating_duration_since(sent);
    // A second for the call itself, on a machine that has other things to do.
    assert!(waited <= POLL * 5 / 4 + Duration::from_secs(1), "it waited for {waited:?}");
}

/// Within one process nobody waits for a poll.
#[tokio::test]
async fn a_message_of_the_same_process_does_not_wait_for_the_poll() {
    let bench = bench!();
    let connection_string = bench.azurite.connection_string();
    let queues = StorageQueues::from_connection_string(&connection_string, &bench.prefix).unwrap();
    let queues = queues.poll_every(Duration::from_secs(3600));
    queues.prepare(&[(*endpoint("work")).clone()]).await.unwrap();
    let consumer = queues.consumer(ConsumerSpec::new(endpoint("work"), LONG)).await.unwrap();
    let receiving = tokio::spawn(async move { next(&consumer).await });
    tokio::time::sleep(Duration::from_secs(4)).await;
    let sent = queues.sender().send(vec![bus_tests::by_hand::command("work", "at once")]).await;
    assert!(sent[0].is_ok(), "{sent:?}");
    in_time("it is received at once", receiving).await.unwrap();
}
