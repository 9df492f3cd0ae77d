//! Hosts that leave: a deploy, seen from the singleton.

use std::time::Duration;

use bus::contract::Ended;
use bus_tests::runs::assert_single;
use bus_tests::site::Site;
use bus_tests::task::Task;
use bus_tests::wait::until_within;

use crate::servers::{Server, is_done};

const TASKS: u64 = 60;
/// Far longer than it takes: what is handed over within it was released, and did not run out.
const LEASE: Duration = Duration::from_secs(120);
const HANDED_OVER: Duration = Duration::from_secs(60);

/// All hosts but one leave at once, in the midst of work: nothing overlaps, nothing is repeated, and the one that stays
/// goes on. When it leaves as well, it releases the lock although there is nobody to take it.
async fn all_but_one_leave(server: Option<Server>) {
    let Some(server) = server else { return };
    let site = Site::new();
    let mut leaving: Vec<_> = (0..4).map(|_| server.host(&site, LEASE).start()).collect();
    for host in &leaving {
        host.started().await;
    }
    server.send((0..TASKS).map(|n| Task::new(n).sleep(20))).await;
    site.begun("single", 5).await;
    let holder = site.runs("single")[0].p;
    let stays = leaving.iter().position(|host| host.pid() != holder).expect("there are four");
    let mut last = leaving.remove(stays);
    for host in &mut leaving {
        host.terminate();
    }
    let all_done = || {
        let runs = site.runs("single");
        (0..TASKS).all(|task| is_done(&runs, task)).then_some(())
    };
    until_within("the one that stays has done the rest", HANDED_OVER, all_done).await;
    for host in leaving.iter_mut().chain([&mut last]) {
        host.terminate();
        assert!(host.exit().await.success());
    }
    let runs = site.runs("single");
    assert_single(&runs);
    assert_eq!(runs.len() as u64, TASKS, "each ran once");
    let record = server.lock().await.expect("a lock");
    assert_eq!(record.ended, Some(Ended::Clean));
    assert_eq!(record.held_for, None);
}

/// S22, S28, S29.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_but_one_leave_on_postgres() {
    all_but_one_leave(Server::postgres().await).await;
}

/// S22, S28, S29.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_but_one_leave_on_redis() {
    all_but_one_leave(Server::redis()).await;
}

/// S22, S28, S29.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_but_one_leave_on_nats() {
    all_but_one_leave(Server::nats()).await;
}
