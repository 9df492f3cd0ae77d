//! A host at work while its server is killed, frozen, cut off, emptied: it goes on by itself, within five seconds of the
//! server being back, and nothing that was acknowledged is lost. (Postgres has these tests among its own.)

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus_tests::tcp_proxy::{Fault, Proxy};
use bus_tests::wait::until_true;

use crate::servers::Server;
use crate::stream::{Diary, SingleWork, Stream, Work, host, producer};

/// The longest that processing may take to go on.
const SOON: Duration = Duration::from_secs(5);

/// A plain processor, and a singleton in two hosts.
async fn killed_twice(server: Option<Server>) {
    let Some(server) = server else { return };
    let url = server.url();
    let stream = Stream::start(&url).await;
    let diary = Arc::new(Diary::default());
    let hosts = [host(&url, "single-work", &diary).await, host(&url, "single-work", &diary).await];
    let producer = producer(&url).await;
    stream.flows("before").await;
    for crash in 1..=2 {
        server.kill();
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.start_again();
        let took = stream.flows("after the crash").await;
        assert!(took < SOON, "it took {took:?}");
        producer.bus().send(SingleWork(crash)).await.expect("sent");
        until_true("the singleton runs", || diary.seen.lock().contains_key(&crash)).await;
    }
    assert!(stream.troubles() > 0, "the crash was not noticed: it was none");
    stream.end().await;
    assert_eq!(diary.overlaps(), 0, "runs of a singleton overlap");
    producer.close().await;
    for host in hosts {
        host.stop().await.expect("the host stops");
    }
}

async fn frozen_for_20_seconds(server: Option<Server>) {
    let Some(server) = server else { return };
    let stream = Stream::start(&server.url()).await;
    stream.flows("before").await;
    server.freeze();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(stream.troubles() > 0, "the freeze was not noticed: it was none");
    server.thaw();
    let took = stream.flows("after the freeze").await;
    assert!(took < SOON, "it took {took:?}");
    stream.end().await;
}

async fn in_a_black_hole_for_30_seconds(server: Option<Server>) {
    let Some(server) = server else { return };
    let proxy = Proxy::start(server.port()).await;
    let stream = Stream::start(&server.url_at(proxy.port())).await;
    stream.flows("before").await;
    proxy.set(Fault::BlackHole);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(stream.troubles() > 0, "the black hole was not noticed: it was none");
    proxy.set(Fault::None);
    let took = stream.flows("after the black hole").await;
    assert!(took < SOON, "it took {took:?}");
    stream.end().await;
}

async fn cut_reset_and_unanswered(server: Option<Server>) {
    let Some(server) = server else { return };
    let proxy = Proxy::start(server.port()).await;
    let stream = Stream::start(&server.url_at(proxy.port())).await;
    for fault in [Fault::Cut, Fault::Reset, Fault::MuteServer] {
        stream.flows("before").await;
        let troubles = stream.troubles();
        proxy.set(fault);
        // Longer than a store's own patience with a server that does not answer.
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert!(stream.troubles() > troubles, "{fault:?} was not noticed: it was none");
        proxy.set(Fault::None);
        let took = stream.flows("after").await;
        assert!(took < SOON, "after {fault:?} it took {took:?}");
    }
    stream.end().await;
}

/// What is in the store is gone, and so may be what is sent in that moment: the host goes on with what comes then.
async fn emptied(server: Option<Server>) {
    let Some(server) = server else { return };
    let diary = Arc::new(Diary::default());
    let hosts = [host(&server.url(), "work", &diary).await, host(&server.url(), "single-work", &diary).await];
    let producer = producer(&server.url()).await;
    for round in 0..2 {
        let (plain, single) = (round * 1_000, 100_000 + round * 1_000);
        server.remove_everything().await;
        let began = Instant::now();
        // A holder learns that its lock is gone by its next renewal, a quarter of 20 s and its jitter.
        let patience = SOON * 2;
        for number in 1.. {
            let sent = producer.bus().send(Work(plain + number)).await.is_ok()
                & producer.bus().send(SingleWork(single + number)).await.is_ok();
            tokio::time::sleep(Duration::from_millis(100)).await;
            let seen = diary.seen.lock();
            let both = seen.keys().any(|seen| (plain..single).contains(seen))
                && seen.keys().any(|seen| *seen >= single);
            if sent && both {
                break;
            }
            assert!(began.elapsed() < patience, "after {patience:?}: sent: {sent}, seen: {:?}", seen.keys());
        }
    }
    producer.close().await;
    for host in hosts {
        host.stop().await.expect("the host stops");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_goes_on_after_crashes_of_redis() {
    killed_twice(Server::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_goes_on_after_crashes_of_nats() {
    killed_twice(Server::nats()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_goes_on_after_redis_was_frozen_for_20_seconds() {
    frozen_for_20_seconds(Server::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_goes_on_after_nats_was_frozen_for_20_seconds() {
    frozen_for_20_seconds(Server::nats()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_goes_on_after_redis_was_in_a_black_hole_for_30_seconds() {
    in_a_black_hole_for_30_seconds(Server::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_goes_on_after_nats_was_in_a_black_hole_for_30_seconds() {
    in_a_black_hole_for_30_seconds(Server::nats()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_goes_on_after_connections_to_redis_were_cut_reset_and_unanswered() {
    cut_reset_and_unanswered(Server::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_goes_on_after_connections_to_nats_were_cut_reset_and_unanswered() {
    cut_reset_and_unanswered(Server::nats()).await;
}

/// M11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_go_on_after_redis_was_emptied() {
    emptied(Server::redis()).await;
}

/// M11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_go_on_after_nats_was_emptied() {
    emptied(Server::nats()).await;
}

/// M11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_go_on_after_postgres_was_emptied() {
    emptied(Server::postgres().await).await;
}
