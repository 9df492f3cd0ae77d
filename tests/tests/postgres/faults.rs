//! Servers that crash, freeze and vanish, and networks between. A stream of messages goes on by itself, within five
//! seconds of the server being back, and nothing that was acknowledged is lost. Scenarios M10, M11, M12, M33, S5.

use std::sync::Arc;
use std::time::Duration;

use bus_tests::by_hand::{command, crowd};
use bus_tests::postgres::{Server, available};
use bus_tests::tcp_proxy::{Fault, Proxy};

use crate::stream::{Diary, SingleWork, Stream, host, producer};

/// The longest that processing may take to go on.
const SOON: Duration = Duration::from_secs(5);

fn through(proxy: &Proxy) -> String {
    format!("postgres://postgres@127.0.0.1:{}/postgres?timeout=2", proxy.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_after_a_crash_of_the_server() {
    if !available() {
        return;
    }
    let mut server = Server::start().await;
    let stream = Stream::start(&format!("{}?timeout=2", server.url())).await;
    stream.flows("before the crash").await;
    for _ in 0..2 {
        server.kill();
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.restart().await;
        let took = stream.flows("after the crash").await;
        assert!(took < SOON, "it took {took:?}");
    }
    assert!(stream.troubles() > 0, "the crash was not noticed: it was none");
    stream.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_after_a_long_outage() {
    if !available() {
        return;
    }
    let mut server = Server::start().await;
    let stream = Stream::start(&format!("{}?timeout=2", server.url())).await;
    stream.flows("before the outage").await;
    server.kill();
    tokio::time::sleep(Duration::from_secs(12)).await;
    server.restart().await;
    let took = stream.flows("after the outage").await;
    assert!(took < SOON, "it took {took:?}");
    stream.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_after_a_black_hole_of_30_seconds() {
    if !available() {
        return;
    }
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let stream = Stream::start(&through(&proxy)).await;
    stream.flows("before the black hole").await;
    let connections = proxy.accepted();
    proxy.set(Fault::BlackHole);
    tokio::time::sleep(Duration::from_secs(30)).await;
    proxy.set(Fault::None);
    let took = stream.flows("after the black hole").await;
    assert!(took < SOON, "it took {took:?}");
    assert!(proxy.accepted() > connections, "connections without an answer were given up");
    assert!(stream.troubles() > 0, "the black hole was not noticed: it was none");
    stream.end().await;
}

/// However many send: they are answered when the first of them are, and not batch after batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_an_outage_a_crowd_of_senders_is_answered_in_time() {
    if !available() {
        return;
    }
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let transport = crate::open(&through(&proxy)).await;
    transport.sender().send(vec![command("crowded", "{}")]).await.remove(0).unwrap();
    proxy.set(Fault::BlackHole);
    let (took, handed_over) = crowd(&transport, "crowded", (10_000, b"{}")).await;
    // Twice the time-out of 2 s, and a connection. In batches of 1024, each of which takes the time-out, it would be 20 s.
    assert!(took < Duration::from_secs(12), "{took:?}");
    assert!(handed_over <= 2 * 1024, "{handed_over}");
    proxy.set(Fault::None);
    transport.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_after_cuts_resets_and_lost_answers() {
    if !available() {
        return;
    }
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let stream = Stream::start(&through(&proxy)).await;
    for fault in [Fault::Cut, Fault::Reset, Fault::MuteServer, Fault::Delay(Duration::from_millis(30))] {
        stream.flows("before").await;
        let troubles = stream.troubles();
        proxy.set(fault);
        tokio::time::sleep(Duration::from_secs(3)).await;
        if !matches!(fault, Fault::Delay(_)) {
            assert!(stream.troubles() > troubles, "{fault:?} was not noticed: it was none");
            proxy.set(Fault::None);
        }
        let took = stream.flows("after").await;
        assert!(took < SOON, "after {fault:?} it took {took:?}");
        proxy.set(Fault::None);
    }
    stream.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_after_a_server_was_frozen_for_20_seconds() {
    if !available() {
        return;
    }
    let server = Server::start().await;
    let stream = Stream::start(&format!("{}?timeout=2", server.url())).await;
    stream.flows("before the freeze").await;
    server.freeze();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(stream.troubles() > 0, "the freeze was not noticed: it was none");
    server.thaw();
    let took = stream.flows("after the freeze").await;
    assert!(took < SOON, "it took {took:?}");
    stream.end().await;
}

/// The administrator ends all sessions, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_when_its_sessions_are_ended() {
    if !available() {
        return;
    }
    let server = Server::start().await;
    let stream = Stream::start(&format!("{}?timeout=2", server.url())).await;
    let client = server.client().await;
    for _ in 0..5 {
        stream.flows("between").await;
        let ended = client
            .query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'bus'",
                &[],
            )
            .await
            .unwrap();
        assert!(ended.len() >= 3, "{} sessions were ended", ended.len());
        let took = stream.flows("after").await;
        assert!(took < SOON, "it took {took:?}");
    }
    stream.end().await;
}

/// Truncated, dropped alone, dropped with all the rest: the queue is there again, and goes on. M11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_goes_on_after_its_tables_were_removed() {
    if !available() {
        return;
    }
    let server = Server::start().await;
    let client = server.client().await;
    let diary = Arc::new(Diary::default());
    let url = format!("{}?timeout=2", server.url());
    let host = host(&url, "work", &diary).await;
    let producer = producer(&url).await;
    let mut number = 0;
    for removal in [
        "TRUNCATE bus.message",
        "TRUNCATE bus.endpoint, bus.message, bus.delayed",
        "DROP TABLE bus.message",
        "DROP SCHEMA bus CASCADE",
    ] {
        client.batch_execute(removal).await.unwrap();
        let began = std::time::Instant::now();
        loop {
            number += 1;
            // What is sent to a table that is removed just now may fail once.
            if producer.bus().send(crate::stream::Work(number)).await.is_ok() {
                break;
            }
            assert!(began.elapsed() < SOON, "after {removal} nothing can be sent");
        }
        while !diary.seen.lock().contains_key(&number) {
            assert!(began.elapsed() < SOON, "after {removal} nothing is processed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    producer.close().await;
    host.stop().await.unwrap();
}

/// Two hosts, one singleton, and a server that crashes under them. The one that has it leaves cleanly afterwards; what
/// becomes of it where a host is killed is in `sessions.rs`. M11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_singleton_never_overlaps_while_the_server_crashes() {
    if !available() {
        return;
    }
    let mut server = Server::start().await;
    let url = format!("{}?timeout=2", server.url());
    let diary = Arc::new(Diary::default());
    let hosts = [host(&url, "single-work", &diary).await, host(&url, "single-work", &diary).await];
    let producer = producer(&url).await;
    for number in 0..200 {
        producer.bus().send(SingleWork(number)).await.unwrap();
    }
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.kill();
        server.restart().await;
    }
    // The host that has it leaves, and the other one takes over.
    let began = std::time::Instant::now();
    let [first, second] = hosts;
    first.stop().await.unwrap();
    while diary.seen.lock().len() < 200 {
        let seen = diary.seen.lock().len();
        assert!(began.elapsed() < Duration::from_secs(60), "{seen} of 200 were processed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(diary.overlaps(), 0, "runs of a singleton overlap");
    producer.close().await;
    second.stop().await.unwrap();
}

/// S5, S6: a holder whose network swallows everything, or every answer, or resets whatever is connected through it, gives up
/// before another host begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_cut_off_never_overlaps() {
    if !available() {
        return;
    }
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    for (fault, schema) in [(Fault::BlackHole, "hole"), (Fault::MuteServer, "mute"), (Fault::Reset, "reset")]
    {
        let through = format!("{}&schema={schema}", through(&proxy));
        let direct = format!("{}?timeout=2&schema={schema}", server.url());
        let actor = env!("CARGO_BIN_EXE_fixture-actor");
        bus_tests::cut_off::never_overlaps(actor, &proxy, &through, &direct, fault).await;
    }
}
