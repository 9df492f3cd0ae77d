//! A disk whose flushes fail. What the system then keeps in memory counts as written and is not on the disk: no later
//! success may rest on it.

use std::time::Duration;

use bus_tests::shim::{Disk, POWER_LOST};
use bus_tests::site::Site;
use bus_tests::task::Task;
use bus_tests::wait::{stays, until, until_true};

use crate::{actor, answered, assert_sound, done, event, send_plain, send_single, sender, stored, told};

/// How many tasks have been answered for so far.
fn count(site: &Site, how: &str) -> usize {
    answered(site, how).len()
}

/// Every caller whose message was in that commit is told that its outcome is unknown; everything goes on by itself.
#[tokio::test]
async fn one_failed_flush_leaves_outcomes_unknown_and_the_next_ones_sound() {
    let site = Site::new();
    let Some(disk) = Disk::new(&site) else { return };
    let producer = disk.under(sender(&site, u64::MAX, 8), 0).start();
    until_true("messages are sent", || count(&site, "sent") > 100).await;
    disk.fail_times(1);
    let refused =
        until("a send fails", || site.entries().into_iter().find(|entry| entry.e == "not sent")).await;
    let say = refused.say.unwrap();
    assert!(say.starts_with("OutcomeUnknown"), "{say}");
    for words in ["the disk failed during the commit", "may or may not have taken effect", "bus.db"] {
        assert!(say.contains(words), "{words} is missing from: {say}");
    }
    let before = count(&site, "sent");
    until_true("it goes on", || count(&site, "sent") > before + 100).await;
    assert_eq!(disk.failures(), 1, "the fault has happened");
    drop(producer);
    assert_sound(&site);
    let host = actor(&site, &["plain"]).start();
    host.started().await;
    let sent = answered(&site, "sent");
    until_true("everything is done", || done(&site, "plain").is_superset(&sent)).await;
}

/// What was acknowledged after the fault survives a power loss: when one flush failed, or the next ones too by which it was
/// to be found out what is on the disk, or a few more; and whatever else has reached the disk. (On the strength of a
/// later flush alone it would not.)
#[tokio::test]
async fn what_is_acknowledged_after_failed_flushes_survives_a_power_loss() {
    for (failing, keeps) in [(1, 0), (1, 3), (2, 0), (2, 5), (3, 0), (6, 0), (6, 6)] {
        let site = Site::new();
        let Some(disk) = Disk::new(&site) else { return };
        let mut producer = disk.under(sender(&site, u64::MAX, 8), keeps).start();
        until_true("messages are sent", || count(&site, "sent") > 100).await;
        disk.fail_times(failing);
        until_true("so many flushes have failed", || disk.failures() == failing as usize).await;
        let before = count(&site, "sent");
        until_true("it goes on", || count(&site, "sent") > before + 100).await;
        disk.lose_power();
        assert_eq!(producer.exit().await.code(), Some(POWER_LOST), "{}", producer.said());
        let lost = disk.lost_pages();
        assert!(lost.is_some_and(|pages| pages > 0), "the power was lost, and something with it");
        assert_sound(&site);
        let sent = answered(&site, "sent");
        let stored = stored(&site);
        let lost: Vec<_> = sent.difference(&stored).collect();
        assert!(lost.is_empty(), "{lost:?} of {} are lost, after {failing} with {keeps}", sent.len());
    }
}

/// While flushes fail nothing is acknowledged, and the disk is not asked over and over.
#[tokio::test]
async fn nothing_is_acknowledged_while_flushes_fail() {
    let site = Site::new();
    let Some(disk) = Disk::new(&site) else { return };
    let producer = disk.under(sender(&site, u64::MAX, 8), 0).start();
    until_true("messages are sent", || count(&site, "sent") > 100).await;
    disk.fail();
    until_true("sends fail", || count(&site, "not sent") > 20).await;
    let sent = count(&site, "sent");
    stays("none is acknowledged", Duration::from_secs(2), || count(&site, "sent") == sent).await;
    assert!(disk.failures() < 50, "{} flushes in two seconds", disk.failures());
    disk.mend();
    until_true("it goes on", || count(&site, "sent") > sent + 100).await;
    drop(producer);
    let sent = answered(&site, "sent");
    assert!(stored(&site).is_superset(&sent));
}

/// It does not run things over and over, says what is the matter, loses its lock in time, and works again by itself as soon
/// as the disk does; nothing is lost.
#[tokio::test]
async fn a_host_sits_out_a_disk_that_fails_for_long() {
    let site = Site::new();
    let Some(disk) = Disk::new(&site) else { return };
    let short = "[processors.plain]\nlease = \"2s\"\nretry = \"immediate\"\n";
    send_plain(&site, (0..5).map(|n| Task::new(n).wait_for(&site.path("go")))).await;
    send_single(&site, [Task::new(10).wait_for(&site.path("go"))]).await;
    let mut host = disk.under(actor(&site, &["plain", "single"]).config(short), 0).start();
    until_true("all have begun", || site.runs("plain").len() == 5 && site.runs("single").len() == 1).await;
    disk.fail();
    event(&site, "disk.failed").await;
    event(&site, "lock.lost").await;
    site.allow("go");
    until_true("the plain ones have ended", || done(&site, "plain").len() == 5).await;
    // Three leases long.
    stays("nothing is run again", Duration::from_secs(6), || {
        site.runs("plain").len() == 5 && !told(&site, "settle.ok")
    })
    .await;
    let tries = disk.failures();
    assert!((2..200).contains(&tries), "{tries} flushes in six seconds");
    assert!(host.said().contains("look at the disk"), "{}", host.said());
    assert!(host.try_exit().is_none(), "it waits: {}", host.said());

    disk.mend();
    event(&site, "file.reopened").await;
    let store = site.store();
    until_true("all is settled", || store.is_drained("plain") && store.is_drained("single")).await;
    assert_eq!(done(&site, "single").len(), 1);
    assert_eq!(store.counts("plain").dead, 0);
    drop(store);
    host.terminate();
    assert!(host.exit().await.success(), "{}", host.said());
    assert_sound(&site);
}

/// Asked to stop while its disk fails, a host does so in time, and does not say that all is well.
#[tokio::test]
async fn a_host_whose_disk_fails_ends_when_asked_and_not_with_zero() {
    let site = Site::new();
    let Some(disk) = Disk::new(&site) else { return };
    // The claim outlives the grace period: until it has run out, its verdict may still be stored.
    let patient = "shutdown_grace_period = \"2s\"\n[processors.plain]\nlease = \"10s\"\n";
    send_plain(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let mut host = disk.under(actor(&site, &["plain"]).config(patient), 0).start();
    site.begun("plain", 1).await;
    disk.fail();
    site.allow("go");
    until_true("its verdict cannot be stored", || host.said().contains("cannot settle")).await;
    host.terminate();
    let (status, _) = host.exit_within(Duration::from_secs(12)).await;
    assert!(status.code().is_some_and(|code| code != 0), "{status}: {}", host.said());
    disk.mend();
    let next = actor(&site, &["plain"]).start();
    until_true("it is done by the next", || site.store().is_drained("plain")).await;
    drop(next);
}
