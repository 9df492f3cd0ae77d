//! Hosts as processes on one server, and what is done to it meanwhile.

use std::time::{Duration, Instant};

use bus_tests::probe::health;
use bus_tests::redis::{DURABLE, Redis};
use bus_tests::site::Site;
use bus_tests::weather::{self, Deed, frozen_beyond_the_lease, host, killed_and_started_again};

use crate::store::server;

/// The program of the hosts.
const ACTOR: &str = env!("CARGO_BIN_EXE_fixture-actor");

/// S1, S5, S15, M10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_singleton_never_overlaps_whatever_happens_to_its_server() {
    let Some(server) = server(DURABLE) else { return };
    let stripped: Deed<Redis> = ("stripped of its clients", |server| {
        let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    });
    let deeds = [killed_and_started_again(), frozen_beyond_the_lease(), stripped];
    weather::a_singleton_never_overlaps(&server, ACTOR, &deeds).await;
}

/// M10, M12: an idle host whose server is frozen is not well within the longest poll of 6.25 s and the 10 s that are stated,
/// though its connection stands; and is well again when the server goes on.
#[tokio::test]
async fn a_frozen_server_turns_the_health_of_an_idle_host_red_and_green_again_after() {
    let Some(server) = server(DURABLE) else { return };
    let site = Site::new();
    let _host = host(&site, ACTOR, &server).arg("plain").env("BUS_HEALTH", "127.0.0.1:0").start();
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

/// M1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_host_had_claimed_comes_back() {
    let Some(server) = server(DURABLE) else { return };
    weather::what_a_killed_host_had_claimed_comes_back(&server, ACTOR).await;
}

/// S1, S5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_cut_off_never_overlaps() {
    let Some(server) = server(DURABLE) else { return };
    weather::a_holder_that_is_cut_off_never_overlaps(&server, ACTOR).await;
}
