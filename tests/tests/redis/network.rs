//! What networks do between a host and its server.

use std::time::{Duration, Instant};

use bus::ErrorKind;
use bus::contract::{Depth, LockId, Owner, Renewal};
use bus::message::Verdict;
use bus_tests::by_hand::crowd;
use bus_tests::redis::{DURABLE, FORGETFUL, url_at};
use bus_tests::tcp_proxy::{Fault, Proxy};
use bus_tests::weather::{self, behind_proxy};
use tokio_util::sync::CancellationToken;

use crate::store::{PATIENCE, PREFIX, body, open, open_locks, receive, receive_now, server, settle};

/// M12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_of_30_seconds_is_waited_out() {
    let Some(server) = server(DURABLE) else { return };
    weather::a_black_hole_of_30_seconds_is_waited_out(server).await;
}

/// However many send: they are answered when the first of them are, and not batch after batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_an_outage_a_crowd_of_senders_is_answered_in_time() {
    let Some(server) = server(FORGETFUL) else { return };
    let proxy = Proxy::start(server.port()).await;
    let transport = open(&format!("{}&timeout=2000", url_at(proxy.port(), PREFIX))).await.unwrap();
    proxy.set(Fault::BlackHole);
    let (took, handed_over) = crowd(&transport, "jobs", (10_000, b"{}")).await;
    // Twice the time-out. In batches of 500, each of which takes that, it would be 40 s.
    assert!(took < Duration::from_secs(12), "{took:?}");
    assert!(handed_over <= 2 * 500, "{handed_over}");
    proxy.set(Fault::None);
    transport.close().await;
}

/// M10, M11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_connections_lose_nothing() {
    let Some(server) = server(DURABLE) else { return };
    weather::cut_connections_lose_nothing(server).await;
}

/// What was asked is done, and the answer is lost: a send says that it does not know, and is stored once; a claim is given
/// again, and is no crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_double_nothing_and_count_no_crash() {
    let Some(server) = server(FORGETFUL) else { return };
    let (store, proxy, direct) = behind_proxy(server).await;
    let consumer = store.consumer("jobs").await;
    // So that the server knows the scripts, and each call is one request.
    store.send("jobs", ["first"]).await;
    let first = receive(&consumer, 1).await.remove(0);
    settle(&consumer, &first.receipt, Verdict::Complete).await.unwrap();

    proxy.set(Fault::MuteServer);
    let lost = store.try_send("jobs", "once").await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::OutcomeUnknown, "{lost:?}");
    assert_eq!(direct.depth("jobs").await, Depth::new(1, 0, 0, 0), "it was stored, once");
    proxy.set(Fault::None);
    store.depth("jobs").await;

    proxy.set(Fault::MuteServer);
    let silent = consumer.receive(1, &CancellationToken::new()).await.unwrap_err();
    assert!(silent.is_transient(), "{silent:?}");
    assert_eq!(direct.depth("jobs").await, Depth::new(0, 1, 0, 0), "it was claimed");
    proxy.set(Fault::None);
    let again = receive(&consumer, 1).await.remove(0);
    assert_eq!((body(&again), again.delivery_count, again.crashes), ("once", 1, 0));

    proxy.set(Fault::MuteServer);
    let silent = settle(&consumer, &again.receipt, Verdict::Complete).await.unwrap_err();
    assert!(silent.is_transient(), "{silent:?}");
    proxy.set(Fault::None);
    // Who asks again is told that it was done; who settles what is known to be settled, that the claim is over.
    settle(&consumer, &again.receipt, Verdict::Complete).await.unwrap();
    let twice = settle(&consumer, &again.receipt, Verdict::Complete).await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::ReceiptLost);
    assert!(receive_now(&consumer, 1).await.is_empty());
    assert_eq!(direct.depth("jobs").await, Depth::default());
}

/// S5, S23: a lock whose answers are lost. Taking it is asked for again by the same owner, with the same fence; renewing
/// says that nothing is known, and goes on afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_lock_nobody_out() {
    let Some(server) = server(FORGETFUL) else { return };
    let proxy = Proxy::start(server.port()).await;
    let locks = open_locks(&url_at(proxy.port(), PREFIX)).await.unwrap();
    let direct = open_locks(&server.url(PREFIX)).await.unwrap();
    let (id, lease, owner) = (LockId::from("queue/it"), Duration::from_secs(10), Owner::fresh());
    // So that the server knows the script.
    locks.try_lock(&LockId::from("other"), lease, Owner::fresh()).await.unwrap();

    proxy.set(Fault::MuteServer);
    let lost = locks.try_lock(&id, lease, owner).await.err().unwrap();
    assert!(lost.is_transient(), "{lost:?}");
    let taken = direct.inspect(&id).await.unwrap().expect("it was taken");
    proxy.set(Fault::None);
    let begun = Instant::now();
    let lease = loop {
        match locks.try_lock(&id, lease, owner).await {
            Ok(lease) => break lease.expect("it is ours"),
            Err(error) => assert!(error.is_transient() && begun.elapsed() < PATIENCE, "{error:?}"),
        }
    };
    assert_eq!(lease.fence(), taken.fence);

    proxy.set(Fault::BlackHole);
    let asked = Instant::now();
    assert!(lease.renew().await.unwrap_err().is_transient());
    assert!(asked.elapsed() < Duration::from_secs(3), "it took {:?}", asked.elapsed());
    proxy.set(Fault::None);
    let begun = Instant::now();
    while lease.renew().await.ok() != Some(Renewal::Held) {
        assert!(begun.elapsed() < Duration::from_secs(5), "it is not renewed again");
    }
}
