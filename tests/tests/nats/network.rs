//! What networks do between a host and its server.

use std::time::{Duration, Instant};

use bus::ErrorKind;
use bus::contract::{ConsumerSpec, Depth, LockId, Owner, Renewal};
use bus::message::Verdict;
use bus_tests::by_hand::crowd;
use bus_tests::nats::url_at;
use bus_tests::tcp_proxy::{Fault, Proxy};
use bus_tests::weather::{self, behind_proxy};

use crate::store::{PATIENCE, PREFIX, endpoint, open, open_locks, receive, server, settle};

/// M12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_of_30_seconds_is_waited_out() {
    let Some(server) = server() else { return };
    weather::a_black_hole_of_30_seconds_is_waited_out(server).await;
}

/// However many send: whoever waits for room is answered when those are who have it, and not round after round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_an_outage_a_crowd_of_senders_is_answered_in_time() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.port()).await;
    let transport = open(&format!("{}&timeout=2000", url_at(proxy.port(), PREFIX))).await.unwrap();
    transport.prepare(&[(*endpoint("jobs")).clone()]).await.unwrap();
    proxy.set(Fault::BlackHole);
    let (took, handed_over) = crowd(&transport, "jobs", (1_280, &[b'x'; 512 << 10])).await;
    // Twice the time-out. In rounds of 64 MiB, each of which takes that, it would be 20 s.
    assert!(took < Duration::from_secs(12), "{took:?}");
    assert!(handed_over <= 2 * 128, "{handed_over}");
    proxy.set(Fault::None);
    transport.close().await;
}

/// M10, M11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_connections_lose_nothing() {
    let Some(server) = server() else { return };
    weather::cut_connections_lose_nothing(server).await;
}

/// A send whose answer is lost says that it does not know, and is stored once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_a_send_stores_it_once() {
    let Some(server) = server() else { return };
    let (store, proxy, direct) = behind_proxy(server).await;
    proxy.set(Fault::MuteServer);
    let lost = store.try_send("jobs", "once").await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::OutcomeUnknown, "{lost:?}");
    assert_eq!(direct.depth("jobs").await, Depth::new(1, 0, 0, 0), "it was stored, once");
    proxy.set(Fault::None);
    store.depth("jobs").await;
    assert_eq!(direct.depth("jobs").await, Depth::new(1, 0, 0, 0));
}

/// S5, S23: a lock whose answers are lost. Taking it is asked for again by the same owner, with the same fence; renewing
/// says that nothing is known, and goes on afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_lock_nobody_out() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.port()).await;
    let locks = open_locks(&url_at(proxy.port(), PREFIX)).await.unwrap();
    let (id, lease, owner) = (LockId::from("queue/it"), Duration::from_secs(10), Owner::fresh());
    let first = locks.try_lock(&id, lease, owner).await.unwrap().expect("it is free");

    proxy.set(Fault::MuteServer);
    let lost = locks.try_lock(&id, lease, owner).await.err().unwrap();
    assert!(lost.is_transient(), "{lost:?}");
    proxy.set(Fault::None);
    let begun = Instant::now();
    let lease = loop {
        match locks.try_lock(&id, lease, owner).await {
            Ok(lease) => break lease.expect("it is ours"),
            Err(error) => assert!(error.is_transient() && begun.elapsed() < PATIENCE, "{error:?}"),
        }
    };
    assert_eq!(lease.fence(), first.fence());

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

/// Two hosts give up on the same message, one of which was cut off meanwhile and has lost its claim: its letter does not take
/// the other's place, and goes with nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_two_hosts_give_up_on_has_its_letter() {
    let Some(server) = server() else { return };
    let (store, proxy, direct) = behind_proxy(server).await;
    direct.send("jobs", ["it"]).await;
    let spec = || ConsumerSpec::new(endpoint("jobs"), Duration::from_secs(5));
    let dead = || Verdict::DeadLetter { reason: "no".into(), error: None };
    let consumer = store.consumer_with(spec()).await;
    let claimed = receive(&consumer, 1).await.remove(0);
    proxy.set(Fault::BlackHole);
    let late = tokio::spawn({
        let (consumer, receipt, dead) = (std::sync::Arc::clone(&consumer), claimed.receipt.clone(), dead());
        async move { settle(&consumer, &receipt, dead).await }
    });
    let other = direct.consumer_with(spec()).await;
    let again = receive(&other, 1).await.remove(0);
    settle(&other, &again.receipt, dead()).await.unwrap();
    proxy.set(Fault::None);
    late.await.unwrap().unwrap_err();
    let late = settle(&consumer, &claimed.receipt, dead()).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::ReceiptLost, "{late:?}");
    assert_eq!(direct.depth("jobs").await, Depth::new(0, 0, 0, 1));
}

fn failed() -> Verdict {
    Verdict::Retry { after: Some(Duration::ZERO), error: bus::Error::new(ErrorKind::Handler, "no") }
}

/// M19: that a run is to be made alone was noted, and nobody learnt of it: it is not made, and the message, given back, has
/// not crashed in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_alone_that_was_not_made_is_no_crash() {
    let Some(server) = server() else { return };
    let (store, proxy, _direct) = behind_proxy(server).await;
    store.send("jobs", ["it"]).await;
    let consumer = store.consumer("jobs").await;
    let claimed = receive(&consumer, 1).await.remove(0);
    proxy.set(Fault::MuteServer);
    consumer.record_alone(&claimed.receipt).await.unwrap_err();
    proxy.set(Fault::None);
    let begun = Instant::now();
    while let Err(error) = settle(&consumer, &claimed.receipt, Verdict::Release).await {
        assert!(error.is_transient() && begun.elapsed() < PATIENCE, "{error:?}");
    }
    let again = receive(&consumer, 1).await.remove(0);
    assert_eq!((again.crashes, again.crashed_alone), (0, false));
}

/// M4: what is said of a claim while there is no connection is not said when there is one again, should the claim have run
/// out meanwhile: the server would take it for a word of whoever has the message then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_runs_out_during_an_outage_is_neither_extended_nor_ended() {
    let Some(server) = server() else { return };
    let (store, proxy, direct) = behind_proxy(server).await;
    let lease = Duration::from_secs(5);
    let spec = || ConsumerSpec::new(endpoint("jobs"), lease);
    store.send("jobs", ["extended", "settled", "failed"]).await;
    let first = store.consumer_with(spec()).await;
    let mut claimed = Vec::new();
    while claimed.len() < 3 {
        claimed.extend(receive(&first, 3).await);
    }
    let ends = claimed[0].claimed_at.expect("it says when") + lease;
    proxy.set(Fault::Cut);
    let clock = bus::clock::Clock::system();
    // Shortly before its end, so that the connection comes back within the time of the call, and after the claim.
    tokio::time::sleep(ends.since(clock.now()).saturating_sub(Duration::from_millis(500))).await;
    let mut extended = [claimed[0].receipt.clone()];
    let late = async {
        tokio::join!(
            async { first.extend(&mut extended, lease).await.remove(0) },
            settle(&first, &claimed[1].receipt, Verdict::Complete),
            settle(&first, &claimed[2].receipt, failed())
        )
    };
    let another = async {
        let second = direct.consumer_with(spec()).await;
        let mut taken = Vec::new();
        while taken.len() < 3 {
            taken.extend(receive(&second, 3).await);
        }
        proxy.set(Fault::None);
        (second, taken)
    };
    let ((extended, settled, also), (second, taken)) = tokio::join!(late, another);
    for late in [extended, settled, also] {
        assert!(late.is_err(), "another one has it");
    }
    assert_eq!(direct.depth("jobs").await, Depth::new(0, 3, 0, 0), "nothing was ended");
    // Nor does what the first one would have written stand in the way.
    for delivery in &taken {
        settle(&second, &delivery.receipt, failed()).await.unwrap();
    }
    let mut again = Vec::new();
    while again.len() < 3 {
        again.extend(receive(&second, 3).await);
    }
    for delivery in &again {
        assert_eq!((delivery.failures, delivery.crashes), (1, 1), "{delivery:?}");
        settle(&second, &delivery.receipt, Verdict::Complete).await.unwrap();
    }
    direct.depth_becomes("jobs", Depth::default()).await;
}
