//! Hosts as processes on one Azurite, and what is done to it, and to them, meanwhile.

use std::time::{Duration, Instant};

use bus::backend::azure_storage::StorageQueues;
use bus::host::Producer;
use bus_emulators::{Azurite, or_skip};
use bus_tests::journal;
use bus_tests::site::{Setup, Site};
use bus_tests::task::{Plain, Task};
use bus_tests::tcp_proxy::{Fault, Proxy};
use bus_tests::wait::{until_true, until_within};

use crate::bench::{bench, fresh_prefix, raw};

/// Much longer than a call takes, and short enough to wait for its end.
const LEASE: &str = "[processors.plain]\nlease = '5s'\n";

/// How soon after the service is back messages are processed.
const SOON: Duration = Duration::from_secs(5);

fn host<'s>(site: &'s Site, connection_string: &str, prefix: &str) -> Setup<'s> {
    site.process(env!("CARGO_BIN_EXE_fixture-actor"))
        .config(LEASE)
        .env("BUS_TRANSPORTS__DEFAULT", format!("azqueue://{prefix}?poll=500ms"))
        .env("BUS_AZURE_CONNECTION_STRING", connection_string)
        .arg("plain")
}

/// Sends to the queues of an account.
pub(crate) async fn producer(connection_string: &str, prefix: &str) -> Producer {
    let queues = StorageQueues::from_connection_string(connection_string, prefix).expect("it can be used");
    bus::Host::builder().transport_instance("default", queues).connect().await.expect("a producer")
}

fn ended(site: &Site, task: u64) -> usize {
    let runs = site.runs("plain");
    runs.iter().filter(|run| run.m == task && run.how.as_deref() == Some("end")).count()
}

/// M1: a host is killed between receiving and settling: nothing is lost.
#[tokio::test]
async fn what_a_killed_host_had_claimed_comes_back() {
    let bench = bench!();
    let site = Site::new();
    let connection_string = bench.azurite.connection_string();
    let sender = producer(&connection_string, &bench.prefix).await;
    let mut first = host(&site, &connection_string, &bench.prefix).start();
    first.started().await;
    sender.bus().send(Plain(Task::new(1).wait_for(&site.path("go")))).await.unwrap();
    site.begun("plain", 1).await;
    first.kill();
    let mut second = host(&site, &connection_string, &bench.prefix).start();
    until_true("it has begun again", || site.runs("plain").len() == 2).await;
    site.allow("go");
    until_true("it is done", || ended(&site, 1) == 1).await;
    assert_eq!(site.runs("plain")[1].count, 2);
    second.terminate();
    assert!(second.exit().await.success());
    assert_eq!(bench.raw.count(&format!("{}-q-plain", bench.prefix)).await, 0, "and it is settled");
    sender.close().await;
}

/// Two hosts that nothing happens to run each message once; one that is stopped in the middle loses and doubles nothing,
/// and what it had claimed and not begun is with the other at once.
#[tokio::test]
async fn hosts_share_the_work_and_double_nothing() {
    const TASKS: u64 = 80;
    let bench = bench!();
    let site = Site::new();
    let connection_string = bench.azurite.connection_string();
    let sender = producer(&connection_string, &bench.prefix).await;
    let start = || host(&site, &connection_string, &bench.prefix).start();
    let (mut first, mut second) = (start(), start());
    first.started().await;
    second.started().await;
    for sent in sender.bus().send_all((0..TASKS).map(|n| Plain(Task::new(n).sleep(50)))).await {
        sent.unwrap();
    }
    until_true("some are done", || site.runs("plain").len() > 20).await;
    first.terminate();
    assert!(first.exit().await.success());
    until_true("all are done", || (0..TASKS).all(|task| ended(&site, task) > 0)).await;
    let runs = site.runs("plain");
    assert_eq!(runs.len() as u64, TASKS, "each ran once");
    assert!(runs.iter().all(|run| run.count == 1), "and none was counted twice");
    second.terminate();
    assert!(second.exit().await.success());
    sender.close().await;
}

/// M10, M11, M33: the service is killed and started again, and frozen for 20 s. What was acknowledged is done, the hosts go
/// on by themselves, within 5 s of its being back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_outlive_a_service_that_is_restarted_or_frozen() {
    let Some(mut azurite) = or_skip(Azurite::start_with_files()) else { return };
    let (site, prefix) = (Site::new(), fresh_prefix());
    let connection_string = azurite.connection_string();
    let sender = producer(&connection_string, &prefix).await;
    let mut hosts = [0, 1].map(|_| host(&site, &connection_string, &prefix).start());
    for host in &hosts {
        host.started().await;
    }
    let mut task = 0;
    for fault in ["restarted", "frozen"] {
        for _ in 0..10 {
            task += 1;
            sender.bus().send(Plain(Task::new(task).sleep(20))).await.unwrap();
        }
        match fault {
            "restarted" => azurite.restart().expect("it starts again"),
            _ => {
                azurite.freeze().expect("it is frozen");
                tokio::time::sleep(Duration::from_secs(20)).await;
                azurite.thaw().expect("it goes on");
            }
        }
        goes_on(&site, &sender, &mut task, fault).await;
    }
    finish(&site, &mut hosts, task).await;
    assert_eq!(raw(&azurite).count(&format!("{prefix}-q-plain")).await, 0);
    sender.close().await;
}

/// M12: the network swallows everything for 30 s: no call hangs, and the host goes on within 5 s of its being back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_outlives_a_black_hole() {
    let bench = bench!();
    let (site, prefix) = (Site::new(), bench.prefix.clone());
    let port = |url: &str| url.rsplit(':').next().and_then(|rest| rest.split('/').next()?.parse().ok());
    let network = Proxy::start(port(bench.azurite.queue_endpoint()).expect("a port")).await;
    let queues = format!("http://127.0.0.1:{}/{}", network.port(), bench.azurite.account());
    let through = bench.azurite.connection_string_at(bench.azurite.blob_endpoint(), &queues);
    let sender = producer(&bench.azurite.connection_string(), &prefix).await;
    let mut hosts = [host(&site, &through, &prefix).start()];
    hosts[0].started().await;
    let mut task = 0;
    goes_on(&site, &sender, &mut task, "before").await;
    network.set(Fault::BlackHole);
    let inside = producer(&through, &prefix).await;
    let began = Instant::now();
    let error = inside.bus().send(Plain(Task::new(1_000))).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(20), "a send hung for {:?}", began.elapsed());
    assert!(error.is_transient() || error.kind() == bus::ErrorKind::OutcomeUnknown, "{error}");
    for _ in 0..5 {
        task += 1;
        sender.bus().send(Plain(Task::new(task))).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(30).saturating_sub(began.elapsed())).await;
    network.set(Fault::None);
    goes_on(&site, &sender, &mut task, "a black hole").await;
    finish(&site, &mut hosts, task).await;
    sender.close().await;
}

/// The tool shows what there is, puts a dead letter back, and makes no queues where there are none.
#[tokio::test]
async fn the_tool_shows_queues_and_puts_dead_letters_back() {
    let bench = bench!();
    let site = Site::new();
    let tool = |arguments: &[&str]| {
        let process = site.process(env!("CARGO_BIN_EXE_mounted")).arg("bus");
        arguments
            .iter()
            .fold(process, |process, argument| process.arg(argument))
            .env("BUS_TRANSPORTS__DEFAULT", format!("azqueue://{}", bench.prefix))
            .env("BUS_AZURE_CONNECTION_STRING", bench.azurite.connection_string())
            .start()
    };
    let mut missing = tool(&["depths"]);
    assert!(!missing.exit().await.success());
    assert!(missing.said().contains("no queues whose names begin so"), "{}", missing.said());

    let host = bench.host().await;
    let consumer = host.consumer(crate::bench::LONG).await;
    host.send("hopeless").await;
    let got = crate::bench::next(&consumer).await;
    let verdict = bus::message::Verdict::DeadLetter { reason: "no such tenant".into(), error: None };
    bus_tests::by_hand::settle(&consumer, &got.receipt, verdict).await.unwrap();
    let id = got.envelope.id.to_string();
    for (arguments, told) in [
        (&["depths", "--json"][..], "\"dead\":1"),
        (&["dead", "list", "work", "--json"], "no such tenant"),
        (&["dead", "put-back", "work", &id], "1"),
        (&["depths", "--json"], "\"ready\":1"),
    ] {
        let mut process = tool(arguments);
        assert!(process.exit().await.success(), "{arguments:?}: {}", process.said());
        assert!(process.said().contains(told), "{arguments:?}: no {told} in {}", process.said());
    }
    assert_eq!(crate::bench::next(&consumer).await.envelope.id, got.envelope.id);
}

/// Sends one more, and waits until it is done, which takes no longer than promised.
async fn goes_on(site: &Site, sender: &Producer, task: &mut u64, after: &str) {
    let back = Instant::now();
    *task += 1;
    // A connection of its own may have died with the service, and then the answer is unknown: sent again, it may come twice.
    until_sent(sender, *task).await;
    let moment = journal::now();
    until_true(after, || site.runs("plain").iter().any(|run| run.m == *task && run.to.is_some())).await;
    let took = back.elapsed();
    assert!(took < SOON, "after {after} it took {took:?}; the message was sent at {moment}");
}

async fn until_sent(sender: &Producer, task: u64) {
    let began = Instant::now();
    while let Err(error) = sender.bus().send(Plain(Task::new(task))).await {
        assert!(began.elapsed() < SOON, "cannot send: {error}");
    }
}

/// All is done, at least once, and the hosts stop in good order.
async fn finish(site: &Site, hosts: &mut [bus_tests::site::Process<'_>], tasks: u64) {
    until_within("all is done", Duration::from_secs(60), || {
        (1..=tasks).all(|task| ended(site, task) > 0).then_some(())
    })
    .await;
    for host in hosts {
        host.terminate();
        assert!(host.exit().await.success());
    }
}
