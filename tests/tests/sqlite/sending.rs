//! Sending: durable, answered one by one, withdrawn with its future.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bus::contract::{Due, Outgoing, StoreUrl};
use bus::message::{Name, Target};
use bus::{ErrorKind, Headers};
use futures_util::future::join_all;

use crate::store::{PATIENCE, Store, aged, bodies, command, envelope, open, open_url, receive, settle};
use bus::message::Verdict;

#[tokio::test]
async fn what_was_sent_is_received_in_order_and_settled() {
    let store = Store::with(&["jobs"]).await;
    store.send("jobs", ["a", "b", "c"]).await;
    let consumer = store.consumer("jobs").await;
    let received = receive(&consumer, 10).await;
    assert_eq!(bodies(&received), ["a", "b", "c"]);
    assert!(received.iter().all(|delivery| delivery.delivery_count == 1 && delivery.crashes == 0));
    for delivery in &received {
        settle(&consumer, &delivery.receipt, Verdict::Complete).await.unwrap();
    }
    assert_eq!(store.depth("jobs").await, bus::contract::Depth::default());
}

#[tokio::test]
async fn a_message_that_is_too_large_fails_alone() {
    let store = Store::new().await;
    let url = StoreUrl::parse(&format!("sqlite://{}?max_body=4", store.file().display())).unwrap();
    let small = open_url(&url).await.unwrap();
    let batch = ["1234", "12345", "123"].map(|body| command("jobs", body)).to_vec();
    let kinds: Vec<_> =
        small.sender().send(batch).await.into_iter().map(|answer| answer.err().map(|e| e.kind())).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::TooLarge), None]);
    assert_eq!(store.depth("jobs").await.ready, 2);
}

/// M31: a NUL, and every other byte, in whatever can hold a text.
#[tokio::test]
async fn any_bytes_survive() {
    let store = Store::with(&["jobs"]).await;
    let mut message = command("jobs", "");
    message.envelope.body = bytes::Bytes::from((0..=255).collect::<Vec<u8>>());
    message.envelope.message_type = "a\0type".into();
    message.envelope.headers = Headers::from_iter([("na\0me", "va\0lue"), ("emoji", "🦀\u{7f}\u{1}")]);
    let sent = message.envelope.clone();
    store.transport.sender().send(vec![message]).await.remove(0).unwrap();
    let consumer = store.consumer("jobs").await;
    let received = receive(&consumer, 1).await.remove(0);
    assert_eq!(received.envelope, sent);

    let reason = "why\0not".to_owned();
    let verdict = Verdict::DeadLetter { reason: reason.clone(), error: None };
    settle(&consumer, &received.receipt, verdict).await.unwrap();
    let dead = store.dead("jobs").await.remove(0);
    assert_eq!((dead.reason, dead.envelope), (reason, sent));
}

/// M28: ids are far above 2^53 from the first message on, and grow over several processes' connections.
#[tokio::test]
async fn order_holds_between_two_connections() {
    let store = Store::with(&["first", "jobs"]).await;
    let other = open(&store.file()).await.unwrap();
    for number in 0..20 {
        let transport = if number % 2 == 0 { &store.transport } else { &other };
        let message = command("jobs", &number.to_string());
        transport.sender().send(vec![message]).await.remove(0).unwrap();
    }
    let received = receive(&store.consumer("jobs").await, 100).await;
    let expected: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(bodies(&received), expected);
    assert!(received.iter().all(|delivery| delivery.receipt.row() > 1 << 46));
}

/// M28: when the numbers are used up, that is an error, and never a message in another endpoint.
#[tokio::test]
async fn the_last_number_is_the_last_message() {
    let store = Store::with(&["first", "jobs"]).await;
    store.sql().execute("UPDATE bus_sequence SET next = (1 << 46) - 1", []).unwrap();
    store.send("first", ["last"]).await;
    let answer = store.transport.sender().send(vec![command("first", "one too many")]).await.remove(0);
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!((store.depth("first").await.ready, store.depth("jobs").await.ready), (1, 0));
    assert_eq!(bodies(&receive(&store.consumer("first").await, 10).await), ["last"]);
}

#[tokio::test]
async fn each_subscription_gets_an_event_and_without_any_it_is_forgotten() {
    let store = Store::with(&["placed/mail", "placed/stock"]).await;
    let publish = |topic: &str| Outgoing::new(Target::Topic(Name::new(topic).unwrap()), envelope("it"));
    let batch = vec![publish("placed"), publish("unheard")];
    for answer in store.transport.sender().send(batch).await {
        answer.unwrap();
    }
    for subscription in ["placed/mail", "placed/stock"] {
        assert_eq!(bodies(&receive(&store.consumer(subscription).await, 10).await), ["it"]);
    }
}

#[tokio::test]
async fn a_delayed_message_comes_when_it_is_due_and_can_be_cancelled_until_then() {
    let store = Store::with(&["jobs"]).await;
    let later = |body, due| command("jobs", body).due(Some(Due::In(due)));
    let batch = vec![
        // Later than what is done before takes on a busy machine.
        later("soon", Duration::from_secs(3)),
        later("never", Duration::from_secs(3)),
        later("late", Duration::from_secs(3600)),
    ];
    let placed: Vec<_> = store.transport.sender().send(batch).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(store.depth("jobs").await, bus::contract::Depth::new(0, 0, 3, 0));
    let delay = store.transport.capabilities().delay.unwrap();
    assert!(delay.cancel(&placed[1], None).await.unwrap());
    assert!(!delay.cancel(&placed[1], None).await.unwrap());

    let consumer = store.consumer("jobs").await;
    assert_eq!(bodies(&receive(&consumer, 10).await), ["soon"]);
    assert!(!delay.cancel(&placed[0], None).await.unwrap());
    assert_eq!(store.depth("jobs").await, bus::contract::Depth::new(0, 1, 1, 0));
}

#[tokio::test]
async fn what_has_outlived_its_time_is_dead_as_expired() {
    let store = Store::with(&["jobs"]).await;
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
    let batch = vec![aged("jobs", "stale", hour, minute), aged("jobs", "fresh", minute, hour)];
    store.transport.sender().send(batch).await;
    assert_eq!(bodies(&receive(&store.consumer("jobs").await, 10).await), ["fresh"]);
    let dead = store.dead("jobs").await;
    assert_eq!((dead[0].reason.as_str(), dead[0].delivery_count), ("expired", 0));
}

#[tokio::test]
async fn a_send_dropped_before_its_turn_is_withdrawn() {
    let store = Store::new().await;
    let gate = std::fs::File::open(store.directory.path().join("bus.db.lock")).unwrap();
    // Nobody writes while the gate is closed.
    gate.lock().unwrap();
    let sender = store.transport.sender();
    let kept = tokio::spawn({
        let sender = store.transport.sender();
        async move { sender.send(vec![command("jobs", "kept")]).await }
    });
    {
        let mut dropped = Box::pin(sender.send(vec![command("jobs", "dropped")]));
        assert!(futures_util::poll!(&mut dropped).is_pending());
    }
    gate.unlock().unwrap();
    kept.await.unwrap().remove(0).unwrap();
    assert_eq!(store.depth("jobs").await.ready, 1);
}

/// A body that is counted for as long as it is in memory.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl Counted {
    fn body(bytes: usize, alive: &Arc<AtomicUsize>) -> bytes::Bytes {
        alive.fetch_add(1, Ordering::SeqCst);
        bytes::Bytes::from_owner(Counted(vec![7; bytes], Arc::clone(alive)))
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

/// While the disk stands still, what callers have given up on does not pile up behind it: the queue takes so many bytes,
/// and whoever waits before it takes his message with him. Afterwards everything goes on, the largest message too.
#[tokio::test]
async fn a_store_that_stands_still_holds_no_more_than_so_many_bytes() {
    const MIB: usize = 1 << 20;
    let store = Store::with(&["jobs"]).await;
    let gate = std::fs::File::open(store.directory.path().join("bus.db.lock")).unwrap();
    gate.lock().unwrap();
    let (alive, sender) = (Arc::new(AtomicUsize::new(0)), store.transport.sender());
    let large = |bytes: usize| {
        let mut message = command("jobs", "");
        message.envelope.body = Counted::body(bytes, &alive);
        message
    };
    for _ in 0..200 {
        let mut sending = sender.send(vec![large(MIB)]);
        assert!(futures_util::poll!(&mut sending).is_pending());
    }
    let held = alive.load(Ordering::SeqCst);
    assert!((1..=64).contains(&held), "{held} MiB are held for callers that have gone");
    // Nobody is kept waiting for what has gone, nor one who wants more than there ever is.
    let waiting = tokio::spawn({
        let (sender, batch) = (store.transport.sender(), (0..5).map(|_| large(16 * MIB)).collect());
        async move { sender.send(batch).await }
    });
    tokio::task::yield_now().await;
    gate.unlock().unwrap();
    for sent in tokio::time::timeout(PATIENCE, waiting).await.expect("it has its turn").unwrap() {
        sent.unwrap();
    }
    assert_eq!(store.depth("jobs").await.ready, 5, "of those that were dropped none was taken");
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

/// One bad message among a hundred that ride together: it fails, they do not.
#[tokio::test]
async fn a_message_that_the_store_refuses_fails_alone() {
    let store = Store::with(&["jobs"]).await;
    store
        .sql()
        .execute_batch(
            "CREATE TRIGGER refuse BEFORE INSERT ON bus_message WHEN NEW.type = 'bad'
             BEGIN SELECT RAISE(ABORT, 'refused'); END",
        )
        .unwrap();
    let gate = std::fs::File::open(store.directory.path().join("bus.db.lock")).unwrap();
    gate.lock().unwrap();
    let sender = store.transport.sender();
    let sends = (0..100).map(|number| {
        let mut message = command("jobs", &number.to_string());
        if number == 50 {
            message.envelope.message_type = "bad".into();
        }
        sender.send(vec![message])
    });
    let mut sending = Box::pin(join_all(sends));
    assert!(futures_util::poll!(&mut sending).is_pending());
    gate.unlock().unwrap();
    let failed: Vec<_> = sending
        .await
        .into_iter()
        .enumerate()
        .filter_map(|(number, mut answers)| answers.remove(0).err().map(|e| (number, e.kind())))
        .collect();
    assert_eq!(failed, [(50, ErrorKind::Internal)]);
    let received = receive(&store.consumer("jobs").await, 200).await;
    let expected: Vec<_> = (0..100).filter(|number| *number != 50).map(|number| number.to_string()).collect();
    assert_eq!(bodies(&received), expected);
}

/// More than the queue holds: the callers behind it wait, and are served in their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_get_an_answer_each() {
    let store = Store::new().await;
    let sender = store.transport.sender();
    let answers = join_all((0..10_000).map(|number| {
        let message = command(if number % 2 == 0 { "even" } else { "odd" }, &number.to_string());
        sender.send(vec![message])
    }))
    .await;
    assert!(answers.iter().all(|answer| answer.len() == 1 && answer[0].is_ok()));
    assert_eq!((store.depth("even").await.ready, store.depth("odd").await.ready), (5000, 5000));
}

#[tokio::test]
async fn after_the_end_everything_is_closed() {
    let store = Store::with(&["jobs"]).await;
    let consumer = store.consumer("jobs").await;
    let waiting = tokio::spawn(async move {
        let stop = tokio_util::sync::CancellationToken::new();
        consumer.receive(1, &stop).await.map(|received| received.len())
    });
    tokio::task::yield_now().await;
    store.transport.close().await;
    store.transport.close().await;
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    let answer = store.transport.sender().send(vec![command("jobs", "late")]).await.remove(0);
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Closed);
    let reopened = open(&store.file()).await.unwrap();
    assert!(reopened.sender().send(vec![command("jobs", "again")]).await.remove(0).is_ok());
}
