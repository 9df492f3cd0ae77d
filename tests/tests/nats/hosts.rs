//! Hosts as processes on one server, and what is done to it meanwhile.

use bus_tests::weather::{self, frozen_beyond_the_lease, killed_and_started_again};

use crate::store::server;

/// The program of the hosts.
const ACTOR: &str = env!("CARGO_BIN_EXE_fixture-actor");

/// S1, S5, S15, M10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_singleton_never_overlaps_whatever_happens_to_its_server() {
    let Some(server) = server() else { return };
    let deeds = [killed_and_started_again(), frozen_beyond_the_lease()];
    weather::a_singleton_never_overlaps(&server, ACTOR, &deeds).await;
}

/// M1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_host_had_claimed_comes_back() {
    let Some(server) = server() else { return };
    weather::what_a_killed_host_had_claimed_comes_back(&server, ACTOR).await;
}

/// S1, S5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_cut_off_never_overlaps() {
    let Some(server) = server() else { return };
    weather::a_holder_that_is_cut_off_never_overlaps(&server, ACTOR).await;
}
