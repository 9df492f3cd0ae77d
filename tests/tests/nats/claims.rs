//! Claims: what comes back and how it is counted, what claiming costs, and what terms leave behind.

use std::time::{Duration, Instant};

use bus::contract::{ConsumerSpec, Depth, Due, Outgoing, PutBack};
use bus::message::Verdict;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::store::{
    LEASE, PREFIX, Store, bodies, body, command, endpoint, open, receive, receive_now, settle,
};

/// M18: what the server still sends when nobody receives any more is given back at once, and was no attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_after_a_stop_is_given_back() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let stopped = store.consumer("jobs").await;
    assert!(receive_now(&stopped, 1).await.is_empty());
    let sent = Instant::now();
    store.send("jobs", ["a"]).await;
    let other = open(&store.server.url(PREFIX)).await.unwrap();
    let other = other.consumer(ConsumerSpec::new(endpoint("jobs"), LEASE)).await.unwrap();
    let got = receive(&other, 1).await.remove(0);
    assert!(sent.elapsed() < LEASE / 3, "it came after {:?}", sent.elapsed());
    assert_eq!((got.delivery_count, got.failures, got.crashes), (1, 0, 0));
}

/// M20: somebody else's bytes in our stream are no reason to stop; they are kept with the reason.
#[tokio::test]
async fn foreign_bytes_end_among_the_dead_letters() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let client = store.server.client().await;
    for foreign in ["", "{\"by\":\"hand\"}", &"x".repeat(100)] {
        client.request("test.q.jobs", foreign.to_owned().into()).await.unwrap();
    }
    store.send("jobs", ["ours"]).await;
    let consumer = store.consumer("jobs").await;
    let ours = receive(&consumer, 10).await;
    assert_eq!(bodies(&ours), ["ours"]);
    settle(&consumer, &ours[0].receipt, Verdict::Complete).await.unwrap();
    let (inspect, jobs) = (store.inspect(), endpoint("jobs"));
    let dead = inspect.dead_letters(&jobs, None, 10).await.unwrap();
    assert_eq!(dead.len(), 3);
    assert!(dead.iter().all(|letter| letter.reason == "unreadable"), "{dead:?}");
    let by_hand = dead.iter().find(|letter| letter.envelope.body.starts_with(b"{")).expect("it is kept");
    let id = by_hand.envelope.id;
    assert_eq!(inspect.put_back(&jobs, &[id]).await.unwrap(), [(id, PutBack::Done)]);
    assert_eq!(bodies(&receive(&consumer, 10).await), ["{\"by\":\"hand\"}"]);
}

/// M23: the server drops what it has stored under the same id before. What is put back again and again, and retried
/// between, is never dropped.
#[tokio::test]
async fn what_is_put_back_again_is_no_duplicate() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    store.send("jobs", ["again"]).await;
    let (consumer, inspect, jobs) = (store.consumer("jobs").await, store.inspect(), endpoint("jobs"));
    for _ in 0..3 {
        let got = receive(&consumer, 1).await.remove(0);
        let error = bus::Error::new(bus::ErrorKind::Handler, "no");
        let retry = Verdict::Retry { after: Some(Duration::ZERO), error };
        settle(&consumer, &got.receipt, retry).await.unwrap();
        let got = receive(&consumer, 1).await.remove(0);
        assert_eq!((got.delivery_count, got.failures), (2, 1));
        let dead = Verdict::DeadLetter { reason: "no".into(), error: None };
        settle(&consumer, &got.receipt, dead).await.unwrap();
        let id = got.envelope.id;
        assert_eq!(inspect.put_back(&jobs, &[id]).await.unwrap(), [(id, PutBack::Done)]);
    }
    assert_eq!(bodies(&receive(&consumer, 10).await), ["again"]);
}

/// M36: delayed messages and retries lie in the store: they survive the host that sent them and the server's end, come
/// once, and not before their time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delays_survive_hosts_and_servers() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let begun = Instant::now();
    let time = Duration::from_secs(6);
    let later = |body: &str| command("jobs", body).due(Some(Due::In(time)));
    let sender = store.transport.sender();
    let cancelled = sender.send(vec![later("cancelled")]).await.remove(0).unwrap();
    sender.send(vec![later("later")]).await.remove(0).unwrap();
    store.send("jobs", ["retried"]).await;
    let consumer = store.consumer("jobs").await;
    let got = receive(&consumer, 1).await.remove(0);
    let error = bus::Error::new(bus::ErrorKind::Handler, "no");
    settle(&consumer, &got.receipt, Verdict::Retry { after: Some(time), error }).await.unwrap();
    store.transport.close().await;
    store.server.kill();
    store.server.start_again();

    let transport = open(&store.server.url(PREFIX)).await.unwrap();
    assert!(transport.capabilities().delay.unwrap().cancel(&cancelled, None).await.unwrap());
    let store = Store { transport, server: store.server };
    store.depth_becomes("jobs", Depth::new(0, 0, 2, 0)).await;
    let consumer = store.consumer("jobs").await;
    let mut all = Vec::new();
    while all.len() < 2 {
        all.extend(receive(&consumer, 10).await);
    }
    assert!(begun.elapsed() >= time, "they came after {:?}", begun.elapsed());
    all.sort_by_key(|got| body(got).to_owned());
    let counts: Vec<_> = all.iter().map(|got| (body(got), got.delivery_count, got.failures)).collect();
    assert_eq!(counts, [("later", 1, 0), ("retried", 2, 1)]);
    assert!(receive_now(&consumer, 10).await.is_empty());
}

/// M24: the cost of a claim does not depend on what waits behind it. Counted in messages to the server, not in time.
#[tokio::test]
async fn a_claim_costs_the_same_whatever_waits_behind_it() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let consumer = store.consumer("jobs").await;
    // The first claim also finds the consumer, and how large messages are.
    store.send("jobs", ["x"]).await;
    let first = receive(&consumer, 1).await.remove(0);
    settle(&consumer, &first.receipt, Verdict::Complete).await.unwrap();
    let mut costs = Vec::new();
    for waiting in [100, 20_000] {
        let batch = (0..waiting).map(|_| command("jobs", "x")).collect();
        for sent in store.transport.sender().send(batch).await {
            sent.unwrap();
        }
        let before = store.server.messages_in();
        let claimed = receive(&consumer, 50).await;
        assert_eq!(claimed.len(), 50);
        costs.push(store.server.messages_in() - before);
        for delivery in claimed {
            settle(&consumer, &delivery.receipt, Verdict::Complete).await.unwrap();
        }
    }
    // What else goes on (a pull for what is delayed, a look at the clock) is a message or two.
    assert!(
        costs[1] <= costs[0] + 4,
        "messages for a claim with few and with many messages behind: {costs:?}"
    );
}

/// Design §5.7: the consumer of an earlier term is deleted when the next begins, so that the server itself has nobody left
/// who could take what its holder still acknowledges.
#[tokio::test]
async fn a_term_leaves_no_consumer_behind() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    store.send("jobs", ["a"]).await;
    let plain = store.consumer("jobs").await;
    let held = receive(&plain, 1).await.remove(0);
    settle(&plain, &held.receipt, Verdict::Release).await.unwrap();
    for fence in [10, 11, 12] {
        let consumer = store.term("jobs", fence).await;
        let got = receive(&consumer, 1).await.remove(0);
        assert_eq!(u64::from(got.crashes), fence - 10, "each term has crashed once");
        let names = store.server.ask("CONSUMER.NAMES.test_q_jobs", &Value::Null).await;
        assert_eq!(names["consumers"], serde_json::json!([format!("run-{fence}")]));
    }
}

/// An event that nobody subscribed to leaves nothing behind, and one that is delayed reaches those who had subscribed when
/// it was published, as on every store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_event_reaches_who_had_subscribed() {
    let Some(store) = Store::with(&[]).await else { return };
    let (count, mail) = (endpoint("placed/count"), endpoint("placed/mail"));
    let event = |due| Outgoing::new(mail.target(), crate::store::envelope("event")).due(due);
    let later = || event(Some(Due::In(Duration::from_secs(1))));
    let sender = store.transport.sender();
    sender.send(vec![event(None)]).await.remove(0).unwrap();
    sender.send(vec![later()]).await.remove(0).unwrap();
    store.transport.prepare(std::slice::from_ref(&*count)).await.unwrap();
    sender.send(vec![later()]).await.remove(0).unwrap();
    store.transport.prepare(std::slice::from_ref(&*mail)).await.unwrap();
    let (counting, mailing) = (store.consumer("placed/count").await, store.consumer("placed/mail").await);
    assert_eq!(receive(&counting, 10).await.len(), 1);
    assert!(counting.receive(1, &cancelled()).await.unwrap().is_empty());
    assert!(receive_now(&mailing, 10).await.is_empty());
    assert_eq!(store.depth("placed/mail").await, Depth::default());
}

fn cancelled() -> CancellationToken {
    let token = CancellationToken::new();
    token.cancel();
    token
}
