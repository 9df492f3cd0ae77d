//! A store whose content is removed beneath a singleton that runs: messages, fences, and the lock itself.

use std::time::{Duration, Instant};

use bus_tests::journal::now;
use bus_tests::runs::{Run, assert_single};
use bus_tests::site::Site;
use bus_tests::task::Task;
use bus_tests::wait::{until_true, until_within};

use crate::servers::{Server, is_done};

const LEASE: Duration = Duration::from_secs(3);
/// Longer than the holder of a lock that is gone can believe in it.
const BELIEVED: Duration = LEASE;

/// A lock that an operator removes excludes nobody (on Postgres: nobody who has not seen it held), so that another host may
/// begin while the holder does not know yet. It learns it within its lease; from then on one of them at a time runs what is
/// sent, by itself, and under a higher fence.
async fn everything_is_removed(server: Option<Server>) {
    let Some(server) = server else { return };
    let site = Site::new();
    let mut hosts: Vec<_> = (0..2).map(|_| server.host(&site, LEASE).start()).collect();
    for host in &hosts {
        host.started().await;
    }
    server.send([Task::new(0).wait_for(&site.path("go")), Task::new(1)]).await;
    let begun = site.begun("single", 0).await;
    server.remove_everything().await;
    let removed = Instant::now();
    until_true("nobody believes in the lock that is gone", || removed.elapsed() > BELIEVED).await;
    site.allow("go");

    let since = now();
    let mut task = 100;
    let processed = async {
        loop {
            server.send([Task::new(task)]).await;
            let done = || is_done(&site.runs("single"), task).then_some(());
            // What was sent before the queue was there again may be gone with it.
            if tokio::time::timeout(Duration::from_secs(3), until_within("", BELIEVED * 2, done))
                .await
                .is_ok()
            {
                break;
            }
            task += 1;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), processed).await.expect("it goes on by itself");
    server.send((200..240).map(|n| Task::new(n).sleep(10))).await;
    let all_done = || {
        let runs = site.runs("single");
        (200..240).all(|task| is_done(&runs, task)).then_some(())
    };
    until_within("all is done", Duration::from_secs(60), all_done).await;
    let later: Vec<Run> = site.runs("single").into_iter().filter(|run| run.from > since).collect();
    assert_single(&later);
    assert!(later.iter().all(|run| run.fence > begun.fence), "{later:#?}");
    for host in &mut hosts {
        host.terminate();
        assert!(host.exit().await.success());
    }
}

/// S7, M11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_removed_from_postgres() {
    everything_is_removed(Server::postgres().await).await;
}

/// S7, M11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_removed_from_redis() {
    everything_is_removed(Server::redis()).await;
}

/// S7, M11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_removed_from_nats() {
    everything_is_removed(Server::nats()).await;
}
