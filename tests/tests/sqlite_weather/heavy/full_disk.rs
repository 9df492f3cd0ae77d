//! A disk without room.

use std::fs;
use std::time::Duration;

use bus_tests::mount::{SmallDisk, where_we_may_mount};
use bus_tests::site::Site;
use bus_tests::task::Task;
use bus_tests::wait::{stays, until_true};

use crate::{actor, answered, assert_sound, done, event, send_plain, send_single, sender, told};

const SHORT: &str = "[processors.plain]\nlease = \"2s\"\nmax_concurrent_calls = 4\n";

/// A store on a disk of its own.
fn site() -> (Site, SmallDisk) {
    let site = Site::with_store("disk/bus.db");
    let disk = SmallDisk::mount(site.path("disk"), 64);
    (site, disk)
}

/// Sends fail, and say so; what was sent before is processed and settled, and a singleton keeps its lock, for as long as it
/// takes: for that a reserve was kept. When there is room again, sends work and the reserve is back.
#[test]
fn on_a_full_disk_what_is_there_is_processed_and_sends_fail_until_there_is_room() {
    let name =
        "heavy::full_disk::on_a_full_disk_what_is_there_is_processed_and_sends_fail_until_there_is_room";
    where_we_may_mount(name, || async {
        let (site, disk) = site();
        let go = site.path("go");
        send_plain(&site, (0..4).map(|n| Task::new(n).wait_for(&go))).await;
        send_plain(&site, (4..500).map(Task::new)).await;
        send_single(&site, [Task::new(1).wait_for(&go)]).await;
        let mut host = actor(&site, &["plain", "single"]).config(SHORT).start();
        site.begun("single", 1).await;
        until_true("four are in hand", || site.runs("plain").len() == 4).await;
        let reserve = site.path("disk/bus.db.reserve");
        assert!(reserve.exists(), "room was kept");

        let filler = disk.fill("filler");
        let producer = sender(&site, u64::MAX, 4).start();
        let full = |entry: &bus_tests::journal::Entry| {
            entry.say.as_ref().is_some_and(|say| {
                say.starts_with("Unavailable")
                    && say.contains("the disk is full")
                    && say.contains("free some space")
                    && say.contains("disk/bus.db")
            })
        };
        site.entry("a send fails", full).await;
        event(&site, "disk.full").await;
        assert!(!reserve.exists(), "the reserve was given up");
        // Two leases long.
        stays("the lock is kept", Duration::from_secs(6), || !told(&site, "lock.lost")).await;
        site.allow("go");
        let store = site.store();
        until_true("what was there is settled", || {
            store.counts("single").claimed == 0 && done(&site, "plain").len() > 490
        })
        .await;
        assert!(
            site.runs("single").iter().all(|run| run.count == 1),
            "nothing ran twice: {:?}",
            site.runs("single")
        );
        assert!(host.try_exit().is_none(), "{}", host.said());

        fs::remove_file(filler).unwrap();
        event(&site, "disk.room").await;
        let before = answered(&site, "sent").len();
        until_true("sends work again", || answered(&site, "sent").len() > before + 100).await;
        assert!(reserve.exists(), "room is kept again");
        drop(producer);
        let sent = answered(&site, "sent");
        until_true("everything is done", || done(&site, "plain").is_superset(&sent)).await;
        until_true("and settled", || store.is_drained("plain")).await;
        assert!(site.runs("plain").iter().all(|run| run.count == 1), "nothing ran twice");
        drop(store);
        host.terminate();
        assert!(host.exit().await.success(), "{}", host.said());
        assert_sound(&site);
    });
}

/// Somebody else takes what was kept, too, and a reader keeps the log from being begun anew: then everything waits, and
/// nothing is run over and over. When there is room everything goes on by itself, and nothing is lost.
#[test]
fn on_a_disk_that_is_full_without_end_everything_waits() {
    let name = "heavy::full_disk::on_a_disk_that_is_full_without_end_everything_waits";
    where_we_may_mount(name, || async {
        let (site, disk) = site();
        let go = site.path("go");
        send_plain(&site, (0..4).map(|n| Task::new(n).wait_for(&go))).await;
        send_plain(&site, (4..2000).map(Task::new)).await;
        let mut host = actor(&site, &["plain", "single"]).config(SHORT).start();
        until_true("four are in hand", || site.runs("plain").len() == 4).await;
        let reader = rusqlite::Connection::open(site.file()).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM bus_message").unwrap();
        let filler = disk.fill("filler");
        event(&site, "disk.full").await;
        let filled_again = disk.fill("filled again");
        site.allow("go");
        until_true("verdicts cannot be stored", || host.said().contains("cannot settle")).await;
        event(&site, "lock.lost").await;
        let runs = site.runs("plain").len();
        // Three leases long.
        stays("nothing is run over and over", Duration::from_secs(6), || site.runs("plain").len() == runs)
            .await;
        assert!(host.try_exit().is_none(), "{}", host.said());
        let lines = host.said().lines().count();
        assert!(lines < 1000, "{lines} lines are said");

        reader.execute_batch("COMMIT").unwrap();
        drop(reader);
        fs::remove_file(filler).unwrap();
        fs::remove_file(filled_again).unwrap();
        until_true("everything is done", || done(&site, "plain").len() == 2000).await;
        let store = site.store();
        until_true("and settled", || store.is_drained("plain")).await;
        assert_eq!(store.counts("plain").dead, 0);
        until_true("the lock is held again", || {
            site.entries().iter().filter(|entry| entry.e == "lock.acquired").count() > 1
        })
        .await;
        drop(store);
        host.terminate();
        assert!(host.exit().await.success(), "{}", host.said());
        assert_sound(&site);
    });
}

/// A host that is started on a full disk works with what is there, or says why it cannot.
#[test]
fn a_host_that_is_started_on_a_full_disk_processes_what_is_there() {
    let name = "heavy::full_disk::a_host_that_is_started_on_a_full_disk_processes_what_is_there";
    where_we_may_mount(name, || async {
        let (site, disk) = site();
        send_plain(&site, (0..300).map(Task::new)).await;
        assert!(site.path("disk/bus.db.reserve").exists());
        disk.fill("filler");
        let mut host = actor(&site, &["plain"]).config(SHORT).start();
        until_true("all is done", || done(&site, "plain").len() == 300).await;
        assert!(told(&site, "disk.full"));
        until_true("and settled", || site.store().is_drained("plain")).await;
        host.terminate();
        assert!(host.exit().await.success(), "{}", host.said());
    });
}
