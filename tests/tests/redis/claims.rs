//! Claims: where messages lie, what is found again, what claiming costs.

use std::time::{Duration, Instant};

use bus::contract::{ConsumerSpec, Depth, Dropped, Due, PutBack};
use bus::message::Verdict;
use bus_tests::redis::Redis;
use tokio_util::sync::CancellationToken;

use crate::store::{LEASE, Store, bodies, calls, command, endpoint, receive, receive_now, settle};

/// M9: what is in flight is found by itself, not by the index of its lease alone.
#[tokio::test]
async fn what_lies_in_no_place_is_found() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    store.send("jobs", ["claimed", "waits"]).await;
    let consumer = store.consumer("jobs").await;
    let claimed = receive(&consumer, 2).await;
    let retry = Verdict::Retry { after: Some(LEASE), error: bus::Error::new(bus::ErrorKind::Handler, "no") };
    settle(&consumer, &claimed[1].receipt, retry).await.unwrap();
    assert_eq!(store.depth("jobs").await, Depth::new(0, 1, 1, 0));
    for index in ["held", "retry"] {
        assert_eq!(store.server.ask::<i64>(&["DEL", &format!("test:{{q/jobs}}:{index}")]), 1);
    }
    let found = receive(&consumer, 2).await;
    let counts: Vec<_> =
        found.iter().map(|d| (crate::store::body(d), d.delivery_count, d.failures, d.crashes)).collect();
    assert_eq!(counts, [("claimed", 2, 0, 1), ("waits", 2, 1, 0)]);
}

/// M9: nor by what it says of claims together; the state of one that has left its claim is another's.
#[tokio::test]
async fn what_is_held_by_no_claim_is_found() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    store.send("jobs", ["a", "b", "c"]).await;
    let consumer = store.consumer("jobs").await;
    let claimed = receive(&consumer, 3).await;
    settle(&consumer, &claimed[0].receipt, Verdict::Release).await.unwrap();
    let again = receive(&consumer, 1).await.remove(0);
    // The claim that it had before says nothing about it any more, and still holds the others.
    let lost = settle(&consumer, &claimed[0].receipt, Verdict::Complete).await.unwrap_err();
    assert_eq!(lost.kind(), bus::ErrorKind::ReceiptLost);
    settle(&consumer, &again.receipt, Verdict::Complete).await.unwrap();
    settle(&consumer, &claimed[1].receipt, Verdict::Complete).await.unwrap();
    assert_eq!(store.depth("jobs").await, Depth::new(0, 1, 0, 0));
    for index in ["held", "claims"] {
        assert_eq!(store.server.ask::<i64>(&["DEL", &format!("test:{{q/jobs}}:{index}")]), 1);
    }
    // Nobody can tell any more that it was claimed.
    let found = receive(&consumer, 2).await;
    assert_eq!(bodies(&found), ["c"]);
    settle(&consumer, &found[0].receipt, Verdict::Complete).await.unwrap();
    assert_eq!(store.depth("jobs").await, Depth::default());
}

/// A server that has lost its last writes gives numbers once more: a delayed message is taken back by its id as well, and
/// not another one that has its number now.
#[tokio::test]
async fn of_two_messages_with_one_number_the_right_one_is_taken_back() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let delayed = || command("jobs", "later").due(Some(Due::In(Duration::from_secs(3600))));
    let place = async |message| store.transport.sender().send(vec![message]).await.remove(0).unwrap();
    let keys = ["meta", "later", "body"].map(|place| format!("test:{{q/jobs}}:{place}"));
    let first = place(delayed()).await;
    let before: String = store.server.ask(&["HGET", &keys[0], "number"]);
    assert!(store.transport.capabilities().delay.unwrap().cancel(&first, None).await.unwrap());
    let lost = place(delayed()).await;
    // As if what came after it had not reached the disk.
    for key in &keys[1..] {
        assert_eq!(store.server.ask::<i64>(&["DEL", key]), 1);
    }
    let _: i64 = store.server.ask(&["HSET", &keys[0], "number", &before]);
    let there = place(delayed()).await;
    let delay = store.transport.capabilities().delay.unwrap();
    assert!(!delay.cancel(&lost, None).await.unwrap(), "it was another's");
    assert_eq!(store.depth("jobs").await, Depth::new(0, 0, 1, 0));
    assert!(delay.cancel(&there, None).await.unwrap());
    assert_eq!(store.depth("jobs").await, Depth::default());
}

/// Some of a claim's messages last on, others run out: each by itself.
#[tokio::test]
async fn a_part_of_a_claim_can_be_extended() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    store.send("jobs", ["kept", "let go", "kept too"]).await;
    let brief = Duration::from_millis(300);
    let consumer = store.consumer_with(ConsumerSpec::new(endpoint("jobs"), brief)).await;
    let claimed = receive(&consumer, 3).await;
    let mut kept = [claimed[0].receipt.clone(), claimed[2].receipt.clone()];
    for extended in consumer.extend(&mut kept, LEASE).await {
        extended.unwrap();
    }
    let lapsed = receive(&consumer, 3).await;
    assert_eq!(bodies(&lapsed), ["let go"]);
    assert_eq!((lapsed[0].delivery_count, lapsed[0].crashes), (2, 1));
    for receipt in kept.iter().chain([&lapsed[0].receipt]) {
        settle(&consumer, receipt, Verdict::Complete).await.unwrap();
    }
    assert_eq!(store.depth("jobs").await, Depth::default());
    let keys: Vec<String> = store.server.ask(&["KEYS", "test:{q/jobs}:*"]);
    let places = ["held", "claims", "lease", "body", "state"];
    assert!(
        !keys.iter().any(|key| places.iter().any(|place| key.ends_with(&format!(":{place}")))),
        "{keys:?}"
    );
}

/// A claim whose answer nobody took is given to the same consumer again, and is no crash.
#[tokio::test]
async fn an_answer_that_was_lost_is_given_again() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let consumer = store.consumer("jobs").await;
    // So that the server knows the script, and is asked just once.
    assert!(receive_now(&consumer, 1).await.is_empty());
    store.send("jobs", ["a", "b"]).await;
    let stop = CancellationToken::new();
    let mut receiving = consumer.receive(1, &stop);
    // Polled until the server has been asked, and never again.
    assert!(futures_util::poll!(&mut receiving).is_pending());
    store.depth_becomes("jobs", Depth::new(1, 1, 0, 0)).await;
    drop(receiving);
    let again = receive(&consumer, 10).await;
    let counts: Vec<_> = again.iter().map(|d| (crate::store::body(d), d.delivery_count, d.crashes)).collect();
    assert_eq!(counts, [("a", 1, 0), ("b", 1, 0)]);
    for delivery in again {
        settle(&consumer, &delivery.receipt, Verdict::Complete).await.unwrap();
    }
    assert_eq!(store.depth("jobs").await, Depth::default());
}

/// M20: somebody else's bytes in our list are no reason to stop; they are kept with the reason.
#[tokio::test]
async fn foreign_bytes_end_among_the_dead_letters() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    for foreign in ["", "{\"by\":\"hand\"}", &"x".repeat(100)] {
        let _: i64 = store.server.ask(&["RPUSH", "test:{q/jobs}:ready", foreign]);
    }
    store.send("jobs", ["ours"]).await;
    let consumer = store.consumer("jobs").await;
    let ours = receive(&consumer, 10).await;
    assert_eq!(bodies(&ours), ["ours"]);
    settle(&consumer, &ours[0].receipt, Verdict::Complete).await.unwrap();
    let (inspect, jobs) = (store.inspect(), endpoint("jobs"));
    let dead = inspect.dead_letters(&jobs, None, 10).await.unwrap();
    assert!(dead.iter().all(|letter| letter.reason == "unreadable"), "{dead:?}");
    assert_eq!(&dead[1].envelope.body[..], b"{\"by\":\"hand\"}");
    let ids: Vec<_> = dead.iter().map(|letter| letter.envelope.id).collect();
    assert_eq!(inspect.put_back(&jobs, &ids[1..2]).await.unwrap(), [(ids[1], PutBack::Done)]);
    assert_eq!(bodies(&receive(&consumer, 10).await), ["{\"by\":\"hand\"}"]);
    assert_eq!(inspect.drop_dead_letters(&jobs, &ids[..1]).await.unwrap(), [(ids[0], Dropped::Done)]);
}

/// M24: the cost of a claim does not depend on what waits behind. Counted in the server's commands, not in time.
#[tokio::test]
async fn a_claim_costs_the_same_whatever_waits_behind_it() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let consumer = store.consumer("jobs").await;
    let mut costs = Vec::new();
    // The first claim also begins to count.
    for waiting in [100, 100, 20_000] {
        let batch = (0..waiting).map(|_| command("jobs", "x")).collect();
        for sent in store.transport.sender().send(batch).await {
            sent.unwrap();
        }
        let before = all_calls(&store.server);
        let claimed = receive(&consumer, 50).await;
        assert_eq!(claimed.len(), 50);
        costs.push(all_calls(&store.server) - before);
        for delivery in claimed {
            settle(&consumer, &delivery.receipt, Verdict::Complete).await.unwrap();
        }
    }
    assert_eq!(costs[1], costs[2], "commands of a claim with few and with many messages behind");
}

fn all_calls(server: &Redis) -> u64 {
    calls(server).values().sum()
}

/// M15, M26: another host's message comes far sooner than the poll (more than 3 s).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_hosts_message_wakes_a_waiting_consumer() {
    let Some(store) = Store::with(&["jobs", "jobs-later"]).await else { return };
    let other = crate::store::open(&store.server.url(crate::store::PREFIX)).await.unwrap();
    let consumer = store.consumer("jobs").await;
    let mut latencies = Vec::new();
    for _ in 0..21 {
        let waiting = tokio::spawn({
            let consumer = consumer.clone();
            async move { (receive(&consumer, 1).await.remove(0), Instant::now()) }
        });
        // Long enough for the consumer to have looked in vain and to wait.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let sent = Instant::now();
        other.sender().send(vec![command("jobs", "now")]).await.remove(0).unwrap();
        let (delivery, received) = waiting.await.unwrap();
        latencies.push(received - sent);
        settle(&consumer, &delivery.receipt, Verdict::Complete).await.unwrap();
    }
    latencies.sort();
    assert!(latencies[10] < Duration::from_millis(500), "{latencies:?}");

    // A message that becomes due sooner than the poll is not waited for by the poll either.
    let later = store.consumer("jobs-later").await;
    let waiting = tokio::spawn(async move { (receive(&later, 1).await, Instant::now()) });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let due = bus::contract::Due::In(Duration::from_millis(300));
    let sent = Instant::now();
    other.sender().send(vec![command("jobs-later", "later").due(Some(due))]).await.remove(0).unwrap();
    let (_, received) = waiting.await.unwrap();
    assert!(received - sent < Duration::from_secs(2), "due in 300 ms, it came after {:?}", received - sent);
}

/// All keys of a queue have one hash tag, and so have those of a topic with its subscriptions.
#[tokio::test]
async fn keys_of_a_queue_share_a_slot() {
    let Some(store) = Store::with(&["jobs", "placed/mail", "placed/count"]).await else { return };
    let brief = ConsumerSpec::new(endpoint("placed/mail"), LEASE);
    let (jobs, mail) = (store.consumer("jobs").await, store.consumer_with(brief).await);
    let event =
        || bus::contract::Outgoing::new(endpoint("placed/mail").target(), crate::store::envelope("event"));
    let later = command("jobs", "later").due(Some(bus::contract::Due::In(LEASE)));
    let batch = vec![command("jobs", "a"), command("jobs", "b"), later, event(), event()];
    for sent in store.transport.sender().send(batch).await {
        sent.unwrap();
    }
    for consumer in [&jobs, &mail] {
        let claimed = receive(consumer, 2).await;
        let failed = bus::Error::new(bus::ErrorKind::Handler, "no");
        let dead = Verdict::DeadLetter { reason: "no".into(), error: None };
        settle(consumer, &claimed[0].receipt, dead).await.unwrap();
        let retry = Verdict::Retry { after: Some(LEASE), error: failed };
        settle(consumer, &claimed[1].receipt, retry).await.unwrap();
    }
    assert!(receive_now(&jobs, 1).await.is_empty());
    let keys: Vec<String> = store.server.ask(&["KEYS", "*"]);
    assert!(keys.len() > 12, "{keys:?}");
    for key in keys.iter().filter(|key| !["test:endpoints", "test:began"].contains(&key.as_str())) {
        let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
        assert!(matches!(tag, Some("q/jobs" | "t/placed")), "{key}");
    }
}
