//! What lies on the server is taken away while it is used, or its answers are lost: what is refused has not happened, and what
//! has an order keeps it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::contract::{Attended, ConsumerSpec, Depth, Due, Outgoing};
use bus::message::Verdict;
use bus::{Endpoint, ErrorKind};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::store::{
    LEASE, PATIENCE, PREFIX, Store, bodies, body, command, endpoint, envelope, open, receive, server, settle,
};

/// A queue's stream comes into being while a caller's batch is on its way, as it does when the server has been started again
/// or somebody else was first: what has been stored of the batch lies in its order, and the rest is said not to be there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_comes_into_being_midway_breaks_no_order() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let other = open(&store.server.url(PREFIX)).await.unwrap();
    let queue = [Endpoint::parse("jobs").unwrap()];
    let mut refused = 0;
    for round in 0..40 {
        store.server.ask("STREAM.DELETE.test_q_jobs", &Value::Null).await;
        let batch = (0..1_000).map(|number| command("jobs", &format!("{number:05}"))).collect();
        let making = async {
            tokio::time::sleep(Duration::from_micros(round * 500)).await;
            other.prepare(&queue).await.unwrap();
        };
        let sender = store.transport.sender();
        let (sent, ()) = tokio::join!(sender.send(batch), making);
        let mut stored = 0;
        for answer in sent {
            match answer {
                Ok(_) => stored += 1,
                Err(refusal) => {
                    assert_eq!(refusal.kind(), ErrorKind::Unavailable, "{refusal:?}");
                    refused += 1;
                }
            }
        }
        let consumer = store.consumer("jobs").await;
        let mut seen = Vec::new();
        while seen.len() < stored {
            seen.extend(receive(&consumer, 1_000).await.iter().map(|got| body(got).to_owned()));
        }
        let disorder = seen.windows(2).find(|pair| pair[0] > pair[1]);
        assert!(disorder.is_none(), "round {round}: {disorder:?}");
        assert_eq!(store.depth("jobs").await.ready, 0, "round {round}: what was refused was stored");
    }
    assert!(refused > 0, "no stream came into being midway");
}

/// A host has taken a delayed message that is due, and is gone before it has moved it, or its connection is: another one
/// moves it a few seconds later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_message_is_not_late_for_long_when_who_had_it_is_gone() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let later = command("jobs", "later").due(Some(Due::In(Duration::from_secs(3))));
    store.transport.sender().send(vec![later]).await.remove(0).unwrap();
    // Whoever keeps the time has put it off, and is gone.
    let begun = Instant::now();
    while store.server.ask("CONSUMER.INFO.test_later.mover", &Value::Null).await["num_ack_pending"] != 1 {
        assert!(begun.elapsed() < PATIENCE, "nobody has looked at it");
    }
    store.transport.close().await;
    let client = store.server.client().await;
    let inbox = client.new_inbox();
    let mut given = client.subscribe(inbox.clone()).await.unwrap();
    let ask = json!({ "batch": 1, "expires": 20_000_000_000_u64 }).to_string();
    let next = "$JS.API.CONSUMER.MSG.NEXT.test_later.mover";
    client.publish_with_reply(next, inbox, ask.into()).await.unwrap();
    let taken = tokio::time::timeout(PATIENCE, given.next()).await.expect("it is due").unwrap();
    assert!(taken.subject.starts_with("test.later.q.jobs."), "{taken:?}");

    let begun = Instant::now();
    let transport = open(&store.server.url(PREFIX)).await.unwrap();
    let store = Store { server: store.server, transport };
    let consumer = store.consumer("jobs").await;
    assert_eq!(bodies(&receive(&consumer, 1).await), ["later"]);
    assert!(begun.elapsed() < Duration::from_secs(15), "it came after {:?}", begun.elapsed());
}

/// A claim is over when its message is to be given up on: the message stays, for whoever claims it next, and there is no letter
/// of it beside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_dead_letter_leaves_none() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    store.send("jobs", ["it"]).await;
    let consumer = store.consumer("jobs").await;
    let claimed = receive(&consumer, 1).await.remove(0);
    store.server.ask("CONSUMER.DELETE.test_q_jobs.all", &Value::Null).await;
    let dead = Verdict::DeadLetter { reason: "no".into(), error: None };
    let late = settle(&consumer, &claimed.receipt, dead.clone()).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::ReceiptLost, "{late:?}");
    assert_eq!(store.depth("jobs").await, Depth::new(1, 0, 0, 0));
    let again = receive(&consumer, 1).await.remove(0);
    settle(&consumer, &again.receipt, dead).await.unwrap();
    assert_eq!(store.depth("jobs").await, Depth::new(0, 0, 0, 1));
}

/// Thousands of messages wait for their retry, more than one call's time is enough to ask for one by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn depths_are_known_however_many_wait_for_their_retry() {
    const RECORDS: usize = 30_000;
    let Some(server) = server() else { return };
    let transport = open(&format!("{}&timeout=1500", server.url(PREFIX))).await.unwrap();
    let store = Store { server: Arc::new(server), transport };
    store.transport.prepare(&[Endpoint::parse("jobs").unwrap()]).await.unwrap();
    store.send("jobs", ["it"]).await;
    let consumer = store.consumer("jobs").await;
    receive(&consumer, 1).await;
    let record = json!({
        "of": 1, "epoch": "all", "nth": 1, "claims": 1, "failures": 1, "crashes": 0, "alone": false,
        "crashed_alone": false, "open": false, "due": i64::MAX,
    });
    let client = store.server.client().await;
    for number in 2..RECORDS + 2 {
        let subject = format!("test.state.tried.q.jobs.{number}");
        client.publish(subject, record.to_string().into()).await.unwrap();
    }
    client.flush().await.unwrap();
    let last = format!("test.state.tried.q.jobs.{}", RECORDS + 1);
    let begun = Instant::now();
    while store.server.ask("STREAM.MSG.GET.test_state", &json!({ "last_by_subj": last })).await["error"]
        .is_object()
    {
        assert!(begun.elapsed() < PATIENCE, "the records are not stored");
    }
    assert_eq!(store.depth("jobs").await.delayed, RECORDS as u64);
    let readings = store.transport.capabilities().readers.unwrap().readings().await.unwrap();
    assert_eq!(readings.len(), 1);
}

/// Somebody deletes the stream of a subscription that hosts read: who publishes makes it again, and the event is in it. One
/// that nobody has read lately stays gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_brings_back_what_is_read_and_nothing_else() {
    let Some(store) = Store::with(&["placed/mail", "placed/gone"]).await else { return };
    let publish = async |text: &str| {
        let event = Outgoing::new(endpoint("placed/mail").target(), envelope(text));
        store.transport.sender().send(vec![event]).await.remove(0).unwrap();
    };
    publish("before").await;
    let mail = Attended::new((*endpoint("placed/mail")).clone());
    store.transport.capabilities().readers.unwrap().attend(&[mail]).await.unwrap();
    for stream in ["test_s_placed_mail", "test_s_placed_gone"] {
        let deleted = store.server.ask(&format!("STREAM.DELETE.{stream}"), &Value::Null).await;
        assert_eq!(deleted["success"], true, "{deleted}");
    }
    publish("after").await;
    assert_eq!(store.inspect().endpoints().await.unwrap(), [(*endpoint("placed/mail")).clone()]);
    let consumer = store.consumer_with(ConsumerSpec::new(endpoint("placed/mail"), LEASE)).await;
    assert_eq!(bodies(&receive(&consumer, 1).await), ["after"]);
}
