//! A session that holds an old snapshot keeps dead rows from being cleaned away, for as long as it lasts.

use std::time::{Duration, Instant};

use bus::ErrorKind;
use bus::contract::ConsumerSpec;
use bus_tests::by_hand::{bodies, command, endpoint};
use bus_tests::postgres::{Server, available};
use bus_tests::wait::PATIENCE;
use tokio_util::sync::CancellationToken;

use crate::open;

/// Longer than a call may take in this test.
const TOO_LONG: Duration = Duration::from_millis(1_300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_starts_gets_past_more_dead_rows_than_one_call_can_walk_over() {
    if !available() {
        return;
    }
    let server = Server::start_with(&["autovacuum=off", "fsync=off", "max_wal_size=8GB"]).await;
    let url = format!("{}?timeout=1", server.url());
    let first = open(&url).await;
    let queue = endpoint("dead-rows");
    first.prepare(std::slice::from_ref(&*queue)).await.unwrap();
    let snapshot = server.client().await;
    snapshot.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    let client = server.client().await;
    let die = "INSERT INTO bus.message (endpoint, sent_at, uuid, type, body)
               SELECT (SELECT id FROM bus.endpoint), 0, gen_random_uuid(), 't', '' FROM generate_series(1, 400000);
               DELETE FROM bus.message";
    client.batch_execute("SET enable_seqscan = off; SET max_parallel_workers_per_gather = 0").await.unwrap();
    loop {
        client.batch_execute(die).await.unwrap();
        let began = Instant::now();
        client.batch_execute("SELECT min(id) FROM bus.message WHERE endpoint > 0 AND id > 0").await.unwrap();
        if began.elapsed() > TOO_LONG {
            break;
        }
    }
    first.sender().send(vec![command("dead-rows", "alive")]).await.remove(0).unwrap();
    let second = open(&url).await;
    let consumer = second.consumer(ConsumerSpec::new(queue, Duration::from_secs(30))).await.unwrap();
    let stop = CancellationToken::new();
    let began = Instant::now();
    let got = loop {
        match consumer.receive(10, &stop).await {
            Ok(got) => break got,
            // One call may come to its end on a busy machine; what it has learned is kept.
            Err(e) => assert_eq!(e.kind(), ErrorKind::Timeout, "{e:?}"),
        }
        assert!(began.elapsed() < PATIENCE * 4, "nothing is found behind the dead rows");
    };
    assert_eq!(bodies(&got), ["alive"]);
    // From now on they are behind it.
    second.sender().send(vec![command("dead-rows", "next")]).await.remove(0).unwrap();
    let began = Instant::now();
    assert_eq!(bodies(&consumer.receive(10, &stop).await.unwrap()), ["next"]);
    assert!(began.elapsed() < TOO_LONG, "they were walked over: it took {:?}", began.elapsed());
    drop(snapshot);
    first.close().await;
    second.close().await;
}
