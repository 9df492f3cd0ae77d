//! A wall clock that jumps while hosts run. Leases go by the boot clock, due times by the wall clock.

use std::time::Duration;

use bus_tests::runs::assert_single;
use bus_tests::shim::WallClock;
use bus_tests::site::Site;
use bus_tests::task::{Plain, Single, Task};
use bus_tests::wait::{stays, until_true};

use crate::{actor, done};

const HOUR: i64 = 3600;

/// C6, §5.11: the holder takes nothing in until its lock is confirmed, and goes on; nobody starts beside it, nothing is
/// lost, and nothing is run twice.
#[tokio::test]
async fn a_jump_of_the_wall_clock_costs_a_holder_no_more_than_a_confirmation() {
    let site = Site::new();
    let Some(clock) = WallClock::new(&site) else { return };
    let setup = || clock.under(actor(&site, &["single", "plain"]));
    let mut holder = setup().start();
    holder.started().await;
    until_true("the lock is held", || holder.said().contains("the singleton starts")).await;
    let mut standby = setup().start();
    standby.started().await;
    let producer = site.producer().await;
    let mut sent = 0;
    for (jump, offset) in [HOUR, 0, -HOUR, 0].into_iter().enumerate() {
        let doubts = || holder.said().matches("ClockJump").count();
        let task = Single(Task::new(sent).wait_for(&site.path(&format!("go {sent}"))));
        producer.bus().send(task).await.unwrap();
        site.begun("single", sent).await;
        clock.set(offset);
        until_true("the jump is noticed", || doubts() == jump + 1).await;
        // Longer than a lease.
        stays("nobody else starts", Duration::from_secs(4), || {
            site.runs("single").len() == usize::try_from(sent + 1).unwrap()
        })
        .await;
        site.allow(&format!("go {sent}"));
        until_true("it is done", || done(&site, "single").contains(&sent)).await;
        sent += 1;
    }
    // The doubt is over: the next one is taken in.
    producer.bus().send(Single(Task::new(sent))).await.unwrap();
    until_true("the next is done", || done(&site, "single").contains(&sent)).await;
    producer.close().await;
    let runs = site.runs("single");
    assert_single(&runs);
    assert!(runs.iter().all(|run| run.p == holder.pid() && run.count == 1), "{runs:?}");
    assert!(!site.entries().iter().any(|entry| entry.e == "lock.lost"));
    until_true("all is settled", || site.store().is_drained("single")).await;
    for host in [&mut holder, &mut standby] {
        host.terminate();
        assert!(host.exit().await.success(), "{}", host.said());
    }
}

/// Claims are not lost either, and delayed messages become due when the wall clock says so: early after a jump ahead, late
/// after one back.
#[tokio::test]
async fn delayed_messages_are_due_by_the_wall_clock_and_claims_last_by_the_boot_clock() {
    let site = Site::new();
    let Some(clock) = WallClock::new(&site) else { return };
    let config = "[processors.plain]\nlease = \"2s\"\n";
    let mut host = clock.under(actor(&site, &["plain"]).config(config)).start();
    host.started().await;
    let other = clock.under(actor(&site, &["plain"]).config(config)).start();
    other.started().await;
    let producer = site.producer().await;
    let send = |task, delay| producer.bus().send(Plain(task)).delay(Duration::from_secs(delay));
    // In hand all the time, many leases long.
    send(Task::new(0).wait_for(&site.path("go")), 0).await.unwrap();
    site.begun("plain", 0).await;
    send(Task::new(1), 3500).await.unwrap();
    send(Task::new(2), 7000).await.unwrap();
    stays("it is too early", Duration::from_secs(2), || done(&site, "plain").is_empty()).await;
    clock.set(HOUR);
    until_true("the first is due", || done(&site, "plain").contains(&1)).await;
    clock.set(-HOUR);
    // Due in two seconds by the true clock, which the hosts' is an hour behind.
    send(Task::new(3), 2).await.unwrap();
    stays("nobody is before their time", Duration::from_secs(6), || done(&site, "plain").len() == 1).await;
    clock.set(2 * HOUR);
    until_true("the others are due", || done(&site, "plain").len() == 3).await;
    site.allow("go");
    until_true("all are done", || done(&site, "plain").len() == 4).await;
    producer.close().await;
    let runs = site.runs("plain");
    assert!(runs.len() == 4 && runs.iter().all(|run| run.count == 1), "nothing ran twice: {runs:?}");
    until_true("all is settled", || site.store().is_drained("plain")).await;
    host.terminate();
    assert!(host.exit().await.success(), "{}", host.said());
}
