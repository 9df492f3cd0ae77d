//! The power is lost: what was written since the last flush is gone, or part of it is, in whatever order.

use std::collections::BTreeSet;

use bus_tests::shim::{Disk, POWER_LOST};
use bus_tests::site::Site;
use bus_tests::task::Task;
use bus_tests::wait::until_true;

use crate::{SHORT_CLAIMS, actor, answered, assert_sound, done, send_plain, sender, stored};

/// Sends until the power is lost at that write or flush, and answers which messages were acknowledged; `None` where there is
/// no C compiler.
async fn send_until_loss(site: &Site, keeps: u32, loss: u32, query: &str) -> Option<BTreeSet<u64>> {
    let disk = Disk::new(site)?;
    let setup = sender(site, u64::MAX, 8).env("BUS_TRANSPORTS__DEFAULT", format!("{}{query}", site.url()));
    let mut producer = disk.under_until(setup, keeps, loss).start();
    assert_eq!(producer.exit().await.code(), Some(POWER_LOST), "{}", producer.said());
    assert!(disk.lost_pages().is_some(), "the power was lost");
    Some(answered(site, "sent"))
}

/// With `synchronous=FULL` every acknowledged message is there, wherever the power was lost: in the making of the file, in a
/// commit, between write and flush, in a checkpoint.
#[tokio::test]
async fn every_acknowledged_message_survives() {
    for keeps in [0, 1, 2] {
        for loss in [701, 1502 + keeps, 4003] {
            let site = Site::new();
            let Some(sent) = send_until_loss(&site, keeps, loss, "").await else { return };
            assert!(!sent.is_empty(), "something was acknowledged");
            assert_sound(&site);
            let stored = stored(&site);
            let lost: Vec<_> = sent.difference(&stored).collect();
            assert!(lost.is_empty(), "{lost:?} of {} are lost, at {loss} with {keeps}", sent.len());
        }
    }
}

/// A store that is just being made is made by the next one who comes.
#[tokio::test]
async fn a_store_whose_making_was_interrupted_is_made_by_the_next() {
    for keeps in [0, 4] {
        for loss in (1..=46).step_by(if keeps == 0 { 5 } else { 9 }) {
            let site = Site::new();
            let Some(sent) = send_until_loss(&site, keeps, loss, "").await else { return };
            assert!(sent.is_empty(), "nothing was acknowledged yet, at {loss}");
            let mut producer = sender(&site, 3, 1).start();
            assert!(producer.exit().await.success(), "at {loss} with {keeps}: {}", producer.said());
            let sent = answered(&site, "sent");
            assert_eq!(sent.len(), 3);
            assert_sound(&site);
            assert!(stored(&site).is_superset(&sent));
        }
    }
}

/// With `synchronous=NORMAL` the last moments' messages may be gone, acknowledged as they were, but the file is sound, and
/// what is there is what was sent first.
#[tokio::test]
async fn without_flushes_the_file_is_sound_and_only_the_latest_messages_are_gone() {
    let mut lost = 0;
    for keeps in [0, 6] {
        for loss in [1501, 9002] {
            let site = Site::new();
            let Some(sent) = send_until_loss(&site, keeps, loss, "?synchronous=NORMAL").await else { return };
            assert_sound(&site);
            let stored = stored(&site);
            let gone: BTreeSet<u64> = sent.difference(&stored).copied().collect();
            // Eight at a time: so far they may have overtaken each other.
            let first_gone = gone.first().copied().unwrap_or(u64::MAX);
            let late = stored.iter().filter(|n| **n > first_gone.saturating_add(8)).count();
            assert_eq!(late, 0, "later ones are there, at {loss} with {keeps}: {gone:?}");
            lost += gone.len();
        }
    }
    assert!(lost > 0, "a power loss without flushes was to be shown");
}

/// What was settled stays settled, and everything else is there to be done.
#[tokio::test]
async fn what_was_settled_stays_so_and_the_rest_is_delivered_again() {
    for (keeps, loss) in [(0, 300), (7, 501), (0, 1002)] {
        let site = Site::new();
        let Some(disk) = Disk::new(&site) else { return };
        send_plain(&site, (0..3000).map(Task::new)).await;
        let setup = || actor(&site, &["plain"]).config(SHORT_CLAIMS);
        let mut host = disk.under_until(setup(), keeps, loss).start();
        assert_eq!(host.exit().await.code(), Some(POWER_LOST), "{}", host.said());
        assert!(disk.lost_pages().is_some(), "the power was lost");
        assert_sound(&site);
        let entries = site.entries();
        let settled: BTreeSet<_> = entries
            .iter()
            .filter(|entry| entry.e == "settle.ok")
            .filter_map(|entry| entry.id.clone())
            .collect();
        assert!(!settled.is_empty(), "something was settled");
        let next = setup().start();
        let pid = next.pid();
        let store = site.store();
        until_true("everything is settled", || store.is_drained("plain")).await;
        assert_eq!(done(&site, "plain").len(), 3000);
        let entries = site.entries();
        let begun = entries.iter().filter(|entry| entry.p == pid && entry.e == "start");
        let again: Vec<_> =
            begun.filter(|entry| entry.id.as_ref().is_some_and(|id| settled.contains(id))).collect();
        assert!(again.is_empty(), "what was settled came again: {again:?}");
    }
}
