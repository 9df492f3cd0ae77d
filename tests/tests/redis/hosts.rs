//! Hosts as processes on one server, and what is done to it meanwhile.

use std::time::{Duration, Instant};

use bus_tests::probe::health;
use bus_tests::redis::{DURABLE, Redis};
use bus_tests::runs::assert_single;
use bus_tests::site::{Setup, Site};
use bus_tests::task::{Single, Task};
use bus_tests::wait::until_true;

use crate::store::{PREFIX, server};

const LEASE: Duration = Duration::from_secs(3);
const TASKS: u64 = 400;

/// What is done to a server.
type Fault = fn(&Redis);

fn host<'s>(site: &'s Site, server: &Redis) -> Setup<'s> {
    site.process(env!("CARGO_BIN_EXE_fixture-actor"))
        .env("BUS_TRANSPORTS__DEFAULT", server.url(PREFIX))
        .env("BUS_LOCKS", "default")
        .env("BUS_LOCK_LEASE", format!("{}s", LEASE.as_secs()))
        .arg("single")
}

fn is_done(site: &Site) -> bool {
    let runs = site.runs("single");
    (0..TASKS).all(|task| runs.iter().any(|run| run.m == task && run.how.as_deref() == Some("end")))
}

/// How many runs have begun after a moment.
fn begun_since(site: &Site, moment: u64) -> bool {
    site.runs("single").iter().any(|run| run.from > moment)
}

/// S1, S5, S15, M10: a singleton in three hosts, whose server is killed and started again, frozen beyond the lease and
/// stripped of its clients: it never overlaps, goes on by itself within the lease and 5 s, and does everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_singleton_never_overlaps_whatever_happens_to_its_server() {
    let Some(server) = server(DURABLE) else { return };
    let site = Site::new();
    let mut hosts: Vec<_> = (0..3).map(|_| host(&site, &server).start()).collect();
    for host in &hosts {
        host.started().await;
    }
    let producer = bus::Host::builder().transport("default", &server.url(PREFIX)).connect().await.unwrap();
    for sent in producer.bus().send_all((0..TASKS).map(|n| Single(Task::new(n).sleep(20)))).await {
        sent.unwrap();
    }
    site.begun("single", 5).await;

    let faults: [(&str, Fault); 3] = [
        ("killed and started again", |server| {
            server.kill();
            std::thread::sleep(Duration::from_secs(1));
            server.start_again();
        }),
        ("frozen beyond the lease", |server| {
            server.freeze();
            std::thread::sleep(LEASE * 2);
            server.thaw();
        }),
        ("stripped of its clients", |server| {
            let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        }),
    ];
    for (fault, inject) in faults {
        inject(&server);
        let (back, moment) = (Instant::now(), bus_tests::journal::now());
        until_true(fault, || begun_since(&site, moment) || is_done(&site)).await;
        let took = back.elapsed();
        assert!(took < LEASE + Duration::from_secs(5), "{fault}: the singleton went on only after {took:?}");
    }
    hosts[0].kill();
    until_true("all is done", || is_done(&site)).await;
    assert_single(&site.runs("single"));
    producer.close().await;
    for host in &mut hosts[1..] {
        host.terminate();
        assert!(host.exit().await.success());
    }
}

/// M10, M12: an idle host whose server is frozen is not well within the longest poll of 6.25 s and the 10 s that are stated,
/// though its connection stands; and is well again when the server goes on.
#[tokio::test]
async fn a_frozen_server_turns_the_health_of_an_idle_host_red_and_green_again_after() {
    let Some(server) = server(DURABLE) else { return };
    let site = Site::new();
    let _host = host(&site, &server).arg("plain").env("BUS_HEALTH", "127.0.0.1:0").start();
    let listens = site.entry("it answers probes", |entry| entry.e == "liveness.listening").await;
    let http = listens.say.and_then(|address| address.parse().ok()).expect("an address");
    let turns = async |wanted: bool| {
        let began = Instant::now();
        loop {
            let (green, shown) = health(http).await.expect("an answer");
            let of = |endpoint: &str| {
                let processors = shown["processors"].as_array().expect("processors");
                let one = processors.iter().find(|one| one["endpoint"] == endpoint).expect("it is shown");
                one["status"] == "green"
            };
            if green == wanted && of("plain") == wanted && of("single") == wanted {
                return (began.elapsed(), shown);
            }
            assert!(began.elapsed() < Duration::from_secs(30), "never came to {wanted}: {shown:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    turns(true).await;
    server.freeze();
    let (took, shown) = turns(false).await;
    assert!(took >= Duration::from_secs(8), "not for a short stall: {took:?}");
    assert!(took < Duration::from_millis(6_250 + 10_000 + 2_000), "it took {took:?}");
    let trouble = shown["processors"][0]["trouble"].as_str().unwrap_or_default();
    assert!(trouble.contains("has not answered a claim for"), "{shown:#}");
    server.thaw();
    turns(true).await;
}

/// M1: a host is killed between receiving and settling: nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_host_had_claimed_comes_back() {
    let Some(server) = server(DURABLE) else { return };
    let site = Site::new();
    let producer = bus::Host::builder().transport("default", &server.url(PREFIX)).connect().await.unwrap();
    producer.bus().send(Single(Task::new(1).wait_for(&site.path("go")))).await.unwrap();
    let mut first = host(&site, &server).start();
    site.begun("single", 1).await;
    first.kill();
    let mut second = host(&site, &server).start();
    until_true("it has begun again", || site.runs("single").len() == 2).await;
    site.allow("go");
    until_true("it is done", || site.runs("single").iter().any(|run| run.how.as_deref() == Some("end")))
        .await;
    let runs = site.runs("single");
    assert_eq!(runs[1].count, 2);
    assert!(runs[1].fence > runs[0].fence);
    assert_single(&runs);
    second.terminate();
    second.exit().await;
    producer.close().await;
}
