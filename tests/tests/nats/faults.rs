//! Servers that are killed, frozen, emptied: hosts recover by themselves, and nothing acknowledged is lost.

use std::time::{Duration, Instant};

use bus::contract::Depth;
use bus::message::Verdict;
use bus::{Endpoint, ErrorKind};
use bus_tests::emptied::{loses_no_event_in_silence, publish_until_taken};
use bus_tests::traffic::Traffic;
use bus_tests::weather;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::store::{PATIENCE, PREFIX, Store, bodies, command, open, receive, receive_now, server, settle};

/// M10, M11, M13, M33
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_and_started_again_loses_nothing() {
    let Some(server) = server() else { return };
    weather::a_server_killed_and_started_again_loses_nothing(server).await;
}

/// M12, S5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_frozen_for_20_seconds_is_waited_out() {
    let Some(server) = server() else { return };
    weather::a_server_frozen_for_20_seconds_is_waited_out(server).await;
}

/// M11, M13: the server's consumer is deleted in mid-stream, and made anew by who reads: no message goes with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_consumer_is_made_again() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let traffic = Traffic::start(&store, "jobs").await;
    for _ in 0..3 {
        let deleted = store.server.ask("CONSUMER.DELETE.test_q_jobs.all", &Value::Null).await;
        // It may be gone with something of it left on the disk, which nats-server 2.9 calls a failure, or still be so from
        // the last time.
        let is_gone = deleted["success"] == true
            || [10_014, 10_051].iter().any(|code| deleted["error"]["err_code"] == *code);
        assert!(is_gone, "{deleted}");
        traffic.flows_soon(Instant::now()).await;
    }
    traffic.end().await;
}

/// M5: a claim that another one has had since, under a consumer that was made anew, is neither given back nor counted by who
/// had it before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_release_takes_a_message_from_nobody() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let other =
        Store { server: store.server.clone(), transport: open(&store.server.url(PREFIX)).await.unwrap() };
    let (first, second) = (store.consumer("jobs").await, other.consumer("jobs").await);
    store.send("jobs", ["it"]).await;
    let failed = receive(&first, 1).await.remove(0);
    let error = bus::Error::new(ErrorKind::Handler, "no");
    let retry = Verdict::Retry { after: Some(Duration::ZERO), error };
    settle(&first, &failed.receipt, retry).await.unwrap();
    let held = receive(&first, 1).await.remove(0);
    store.server.ask("CONSUMER.DELETE.test_q_jobs.all", &Value::Null).await;
    let taken = receive(&second, 1).await.remove(0);
    assert_eq!((taken.failures, taken.crashes), (1, 1));
    let late = settle(&first, &held.receipt, Verdict::Release).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::ReceiptLost, "{late:?}");
    assert!(receive_now(&second, 1).await.is_empty(), "it was taken from who runs it");
    settle(&second, &taken.receipt, Verdict::Complete).await.unwrap();
    store.depth_becomes("jobs", Depth::default()).await;
}

/// M11: streams are deleted while they are read, also that of records. Consumers that wait make theirs again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_streams_are_made_again() {
    let Some(store) = Store::with(&["jobs", "placed/mail"]).await else { return };
    let (jobs, mail) = (store.consumer("jobs").await, store.consumer("placed/mail").await);
    let stop = CancellationToken::new();
    let waiting = (jobs.receive(1, &stop), mail.receive(1, &stop));
    let deleting = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        for stream in ["test_q_jobs", "test_s_placed_mail", "test_state", "test_later", "test_dead"] {
            let deleted = store.server.ask(&format!("STREAM.DELETE.{stream}"), &Value::Null).await;
            assert_eq!(deleted["success"], true, "{stream}: {deleted}");
        }
        let inspect = store.inspect();
        while inspect.endpoints().await.unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        store.send("jobs", ["command"]).await;
        publish_until_taken(&store.transport, "event").await;
    };
    let both = async { tokio::join!(waiting.0, waiting.1, deleting) };
    let (command, event, ()) = tokio::time::timeout(PATIENCE, both).await.expect("they come in time");
    let (command, event) = (command.unwrap(), event.unwrap());
    assert_eq!((bodies(&command), bodies(&event)), (vec!["command"], vec!["event"]));
    // What needs the other streams makes them again.
    let error = bus::Error::new(ErrorKind::Handler, "no");
    let retry = Verdict::Retry { after: Some(Duration::ZERO), error: error.clone() };
    settle(&jobs, &command[0].receipt, retry).await.unwrap();
    let again = receive(&jobs, 1).await.remove(0);
    assert_eq!((again.delivery_count, again.failures), (2, 1));
    let dead = Verdict::DeadLetter { reason: "no".into(), error: Some(error) };
    settle(&mail, &event[0].receipt, dead).await.unwrap();
    assert_eq!(store.depth("placed/mail").await, Depth::new(0, 0, 0, 1));
}

/// M11: an event that is published to a server which has just been emptied is refused until those who read it are there again,
/// and not taken and forgotten; be it that all streams are deleted, or that its data is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_for_an_emptied_server_is_refused_until_it_is_read_again() {
    for is_restarted in [false, true] {
        let Some(store) = Store::with(&["placed/mail"]).await else { return };
        let reader = open(&store.server.url(PREFIX)).await.unwrap();
        let empty = async || {
            if is_restarted {
                store.server.kill();
                store.server.lose_data();
                store.server.start_again();
                // Whoever is connected again finds it empty.
                while store.try_send("other", "x").await.is_err() {}
            } else {
                let streams = store.server.ask("STREAM.NAMES", &Value::Null).await;
                for stream in streams["streams"].as_array().unwrap() {
                    let delete = format!("STREAM.DELETE.{}", stream.as_str().unwrap());
                    assert_eq!(store.server.ask(&delete, &Value::Null).await["success"], true);
                }
            }
        };
        loses_no_event_in_silence(&store.transport, &reader, empty).await;
    }
}

/// A stream is deleted and made again by hand, and its numbers begin anew: what was recorded of others concerns no
/// message of the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_a_former_stream_concern_nobody() {
    for is_singleton in [false, true] {
        records_of_a_former_stream(is_singleton).await;
    }
}

async fn records_of_a_former_stream(is_singleton: bool) {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let consumer = if is_singleton { store.term("jobs", 1).await } else { store.consumer("jobs").await };
    let fail =
        || Verdict::Retry { after: Some(Duration::ZERO), error: bus::Error::new(ErrorKind::Handler, "no") };
    store.send("jobs", ["former"]).await;
    for _ in 0..2 {
        let got = receive(&consumer, 1).await.remove(0);
        settle(&consumer, &got.receipt, fail()).await.unwrap();
    }
    let deleted = store.server.ask("STREAM.DELETE.test_q_jobs", &Value::Null).await;
    assert_eq!(deleted["success"], true, "{deleted}");
    store.send("jobs", ["new"]).await;
    for failures in 0..3 {
        let got = receive(&consumer, 1).await.remove(0);
        assert_eq!(
            (bodies(std::slice::from_ref(&got)), got.failures, got.crashes),
            (vec!["new"], failures, 0)
        );
        settle(&consumer, &got.receipt, fail()).await.unwrap();
    }
}

/// A send whose answer was lost may have been stored; it is never made again silently. What was never asked says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_says_what_is_known_of_it() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    store.send("jobs", ["before"]).await;
    store.server.freeze();
    let lost = store.try_send("jobs", "lost").await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::OutcomeUnknown, "{lost:?}");
    store.server.thaw();
    store.send("jobs", ["after"]).await;
    let consumer = store.consumer("jobs").await;
    let mut seen = Vec::new();
    while !seen.contains(&"after".to_owned()) {
        seen.extend(receive(&consumer, 10).await.iter().map(|got| crate::store::body(got).to_owned()));
    }
    assert!(seen.iter().filter(|body| *body == "lost").count() <= 1, "{seen:?}");

    store.server.kill();
    // The first call may be the one that finds it out.
    let _ = store.try_send("jobs", "finds it out").await;
    let refused = store.try_send("jobs", "refused").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    assert!(refused.is_transient());
    store.server.start_again();
    store.send("jobs", ["again"]).await;
}

/// M17: stopping does not wait for a server that is gone or silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_does_not_wait_for_the_server() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let consumer = store.consumer("jobs").await;
    assert!(receive_now(&consumer, 1).await.is_empty());
    for kill in [false, true] {
        if kill {
            store.server.kill();
        } else {
            store.server.freeze();
        }
        let stop = CancellationToken::new();
        let receiving = tokio::spawn({
            let (consumer, stop) = (consumer.clone(), stop.clone());
            async move { consumer.receive(1, &stop).await }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        let stopped = Instant::now();
        stop.cancel();
        let _ = tokio::time::timeout(PATIENCE, receiving).await.expect("it returns").unwrap();
        assert!(stopped.elapsed() < Duration::from_secs(3), "it took {:?}", stopped.elapsed());
        if !kill {
            store.server.thaw();
            store.send("jobs", ["awake"]).await;
            let delivery = receive(&consumer, 1).await.remove(0);
            settle(&consumer, &delivery.receipt, Verdict::Complete).await.unwrap();
        }
    }
    let closing = Instant::now();
    store.transport.close().await;
    assert!(closing.elapsed() < Duration::from_secs(3), "closing took {:?}", closing.elapsed());
}

/// Many messages of one caller for several queues: each queue keeps their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_for_many_queues_keeps_the_order_of_each() {
    let Some(store) = Store::with(&["one", "two"]).await else { return };
    let batch: Vec<_> = (0..2_000)
        .map(|number: usize| {
            command(if number.is_multiple_of(2) { "one" } else { "two" }, &format!("{number:05}"))
        })
        .collect();
    for sent in store.transport.sender().send(batch).await {
        sent.unwrap();
    }
    for queue in ["one", "two"] {
        let consumer = store.consumer(queue).await;
        let mut seen = Vec::new();
        while seen.len() < 1_000 {
            seen.extend(receive(&consumer, 1_000).await.iter().map(|got| crate::store::body(got).to_owned()));
        }
        let disorder = seen.windows(2).find(|pair| pair[0] > pair[1]);
        assert!(disorder.is_none(), "{queue}: {disorder:?}");
    }
}

/// A stream that is full refuses what is new, keeps what it has, and takes more when there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_stream_is_emptied() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let told = store.server.ask("STREAM.INFO.test_q_jobs", &Value::Null).await;
    let mut config = told["config"].clone();
    config["max_msgs"] = json!(3);
    let updated = store.server.ask("STREAM.UPDATE.test_q_jobs", &config).await;
    assert!(updated["error"].is_null(), "{updated}");
    store.send("jobs", ["a", "b", "c"]).await;
    let refused = store.try_send("jobs", "too much").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    assert!(refused.to_string().contains("no room"), "{refused}");
    let consumer = store.consumer("jobs").await;
    let claimed = receive(&consumer, 3).await;
    assert_eq!(bodies(&claimed), ["a", "b", "c"]);
    settle(&consumer, &claimed[0].receipt, Verdict::Complete).await.unwrap();
    store.try_send("jobs", "enough room").await.unwrap();
    assert_eq!(store.inspect().endpoints().await.unwrap(), [Endpoint::parse("jobs").unwrap()]);
}
