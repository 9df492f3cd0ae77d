//! Servers that are killed, frozen, emptied, cut off: hosts recover by themselves, and nothing acknowledged is lost.

use std::time::{Duration, Instant};

use bus::contract::{ConsumerSpec, Depth, Ended, LockId, Owner};
use bus::message::Verdict;
use bus::{Endpoint, ErrorKind};
use bus_tests::emptied::{loses_no_event_in_silence, publish_until_taken};
use bus_tests::redis::{DURABLE, FORGETFUL};
use bus_tests::traffic::Traffic;
use bus_tests::weather;
use tokio_util::sync::CancellationToken;

use crate::store::{
    LEASE, PATIENCE, PREFIX, Store, bodies, command, endpoint, open, open_locks, receive, receive_now,
    server, settle,
};

/// M10, M11, M13, M33
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_and_started_again_loses_nothing() {
    let Some(server) = server(DURABLE) else { return };
    weather::a_server_killed_and_started_again_loses_nothing(server).await;
}

/// M12, S5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_frozen_for_20_seconds_is_waited_out() {
    let Some(server) = server(DURABLE) else { return };
    weather::a_server_frozen_for_20_seconds_is_waited_out(server).await;
}

/// The administrator ends our connections, those for hints included.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_connections_are_made_again() {
    let Some(store) = Store::durable(&["jobs", "quiet"]).await else { return };
    let traffic = Traffic::start(&store, "jobs").await;
    let quiet = store.consumer("quiet").await;
    for _ in 0..3 {
        for kind in ["normal", "pubsub"] {
            let _: i64 = store.server.ask(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
        }
        traffic.flows_soon(Instant::now()).await;
    }
    traffic.end().await;
    // Hints come again too: far sooner than the poll.
    let subscribed = || store.server.ask::<Vec<redis::Value>>(&["PUBSUB", "CHANNELS"]).len() == 2;
    bus_tests::wait::until_true("the channels are listened to again", subscribed).await;
    let waiting = tokio::spawn(async move { receive(&quiet, 1).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let sent = Instant::now();
    store.send("quiet", ["now"]).await;
    assert_eq!(bodies(&waiting.await.unwrap()), ["now"]);
    assert!(sent.elapsed() < Duration::from_secs(2), "the hint took {:?}", sent.elapsed());
}

/// The server forgets the scripts, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_scripts_are_told_again() {
    let Some(store) = Store::durable(&["jobs"]).await else { return };
    let traffic = Traffic::start(&store, "jobs").await;
    for _ in 0..50 {
        let _: String = store.server.ask(&["SCRIPT", "FLUSH", "SYNC"]);
        traffic.flows_soon(Instant::now()).await;
    }
    traffic.end().await;
}

/// M11: all that there was is gone. Consumers that wait make their endpoints again, also those that nobody sends to by
/// name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_server_is_furnished_again() {
    let Some(store) = Store::with(&["jobs", "placed/mail"]).await else { return };
    let (jobs, mail) = (store.consumer("jobs").await, store.consumer("placed/mail").await);
    let emptied = store.server.ask::<String>(&["FLUSHALL"]);
    assert_eq!(emptied, "OK");
    let stop = CancellationToken::new();
    // They look by themselves, after the poll at the latest.
    let waiting = (jobs.receive(1, &stop), mail.receive(1, &stop));
    let sending = async {
        let inspect = store.inspect();
        while inspect.endpoints().await.unwrap().len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        store.send("jobs", ["command"]).await;
        publish_until_taken(&store.transport, "event").await;
    };
    let both = async { tokio::join!(waiting.0, waiting.1, sending) };
    let (command, event, ()) = tokio::time::timeout(PATIENCE, both).await.expect("they come in time");
    assert_eq!(bodies(&command.unwrap()), ["command"]);
    assert_eq!(bodies(&event.unwrap()), ["event"]);
}

/// M11: an event that is published to a server which has just been emptied is refused until those who read it are there again,
/// and not taken and forgotten; be it flushed, or started again without its data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_for_an_emptied_server_is_refused_until_it_is_read_again() {
    for is_restarted in [false, true] {
        let Some(store) = Store::with(&["placed/mail"]).await else { return };
        let reader = open(&store.server.url(PREFIX)).await.unwrap();
        let empty = async || {
            if is_restarted {
                store.server.kill();
                store.server.start_again();
                // Whoever is connected again finds it empty.
                while store.try_send("other", "x").await.is_err() {}
            } else {
                let _: String = store.server.ask(&["FLUSHALL"]);
            }
        };
        loses_no_event_in_silence(&store.transport, &reader, empty).await;
        // Who has not known the store before has nothing to wait for.
        let _: String = store.server.ask(&["FLUSHALL"]);
        let new = open(&store.server.url(PREFIX)).await.unwrap();
        let event =
            bus::contract::Outgoing::new(endpoint("placed/mail").target(), crate::store::envelope("x"));
        new.sender().send(vec![event]).await.remove(0).unwrap();
    }
}

/// A queue's keys are deleted, one after the other and all of them, while it is used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_whose_keys_are_deleted_goes_on() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let consumer = store.consumer_with(ConsumerSpec::new(endpoint("jobs"), Duration::from_millis(300))).await;
    let places = [
        "meta", "ready", "back", "held", "claims", "lease", "retry", "later", "body", "state", "error",
        "dead", "buried",
    ];
    for round in 0..3 {
        for place in places {
            store.send("jobs", ["a", "b", "c"]).await;
            let held = receive(&consumer, 1).await.remove(0);
            let _: i64 = store.server.ask(&["DEL", &format!("test:{{q/jobs}}:{place}")]);
            // Whatever became of it: it is answered for, and the queue goes on.
            let settled = settle(&consumer, &held.receipt, Verdict::Complete).await;
            assert!(settled.is_ok() || settled.unwrap_err().kind() == ErrorKind::ReceiptLost, "{place}");
            let last = format!("after {place} {round}");
            store.send("jobs", [last.as_str()]).await;
            let mut seen = Vec::new();
            while !seen.contains(&last) {
                for delivery in receive(&consumer, 10).await {
                    seen.push(crate::store::body(&delivery).to_owned());
                    settle(&consumer, &delivery.receipt, Verdict::Complete).await.unwrap();
                }
            }
            if place != "ready" {
                assert!(seen.contains(&"c".to_owned()), "without {place} of a, b, c came {seen:?}");
            }
        }
    }
    // What lost its claim with a key comes back when its lease has run out.
    while store.depth("jobs").await != Depth::default() {
        for delivery in receive_now(&consumer, 10).await {
            settle(&consumer, &delivery.receipt, Verdict::Complete).await.unwrap();
        }
    }
    assert_eq!(store.inspect().endpoints().await.unwrap(), [Endpoint::parse("jobs").unwrap()]);
}

/// A send whose answer was lost may have been stored; it is never made again silently. What was never asked says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_says_what_is_known_of_it() {
    let Some(store) = Store::durable(&["jobs"]).await else { return };
    store.send("jobs", ["before"]).await;
    store.server.freeze();
    let lost = store.try_send("jobs", "lost").await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::OutcomeUnknown, "{lost:?}");
    store.server.thaw();
    store.send("jobs", ["after"]).await;
    let consumer = store.consumer("jobs").await;
    let mut seen = Vec::new();
    while !seen.contains(&"after".to_owned()) {
        seen.extend(
            receive(&consumer, 10).await.iter().map(|delivery| crate::store::body(delivery).to_owned()),
        );
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

/// A full server takes nothing new, and lets everything go on that frees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_is_emptied() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    store.send("jobs", ["a", "b", "c"]).await;
    let consumer = store.consumer("jobs").await;
    let _: String = store.server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = store.try_send("jobs", "too much").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    assert!(refused.to_string().contains("maxmemory"), "{refused}");

    let claimed = receive(&consumer, 3).await;
    assert_eq!(bodies(&claimed), ["a", "b", "c"]);
    let mut receipts: Vec<_> = claimed.iter().map(|delivery| delivery.receipt.clone()).collect();
    for extended in consumer.extend(&mut receipts, LEASE).await {
        extended.unwrap();
    }
    consumer.record_alone(&receipts[0]).await.unwrap();
    let failed = bus::Error::new(ErrorKind::Handler, "it failed");
    let verdicts = [
        Verdict::Complete,
        Verdict::Retry { after: Some(Duration::ZERO), error: failed.clone() },
        Verdict::DeadLetter { reason: "no".into(), error: Some(failed) },
    ];
    for (receipt, verdict) in receipts.iter().zip(verdicts) {
        settle(&consumer, receipt, verdict).await.unwrap();
    }
    assert_eq!(store.depth("jobs").await, Depth::new(1, 0, 0, 1));
    let again = receive(&consumer, 1).await.remove(0);
    settle(&consumer, &again.receipt, Verdict::Release).await.unwrap();
    let _: String = store.server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    store.try_send("jobs", "enough room").await.unwrap();
}

/// What waits on a full server is worked off by the next holder, and can be put back: both have to become known first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_takes_a_new_holder() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    store.send("jobs", ["a", "b"]).await;
    let former = store.term("jobs", 1).await;
    let held = receive(&former, 1).await;
    let _: String = store.server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let next = store.term("jobs", 2).await;
    assert_eq!(bodies(&receive(&next, 2).await), ["a", "b"]);
    let late = settle(&former, &held[0].receipt, Verdict::Complete).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TermLost, "{late:?}");
}

/// Without the permission for the channels nobody hears hints, and everything else is done and answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_channels_does_without_hints() {
    let Some(server) = server(FORGETFUL) else { return };
    let rules = ["ACL", "SETUSER", "app", "on", ">s3cret", "~test:*", "resetchannels", "+@all", "-@admin"];
    let _: String = server.ask(&rules);
    let url = format!("redis://app:s3cret@127.0.0.1:{}/0?prefix=test", server.port());
    let transport = open(&url).await.unwrap();
    transport.prepare(&[bus::Endpoint::parse("jobs").unwrap()]).await.unwrap();
    transport.sender().send(vec![command("jobs", "x")]).await.remove(0).unwrap();
    let consumer = transport.consumer(ConsumerSpec::new(endpoint("jobs"), LEASE)).await.unwrap();
    let claimed = receive(&consumer, 1).await;
    assert_eq!(bodies(&claimed), ["x"]);
    settle(&consumer, &claimed[0].receipt, Verdict::Release).await.unwrap();
    let locks = open_locks(&url).await.unwrap();
    let lease = locks.try_lock(&LockId::from("queue/jobs"), LEASE, Owner::fresh()).await.unwrap().unwrap();
    lease.release(Ended::Clean).await.unwrap();
}

/// Many messages of one caller for several queues, while connections break: each queue keeps their order.
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
            seen.extend(
                receive(&consumer, 1_000)
                    .await
                    .iter()
                    .map(|delivery| crate::store::body(delivery).to_owned()),
            );
        }
        assert!(seen.is_sorted(), "{queue}");
    }
}
