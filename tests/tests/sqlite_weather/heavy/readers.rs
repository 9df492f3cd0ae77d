//! Somebody who reads for long: the log cannot be begun anew.

use std::fs;
use std::path::PathBuf;

use bus_tests::site::Site;
use bus_tests::task::Task;
use bus_tests::wait::until_true;

use crate::{actor, event, send_plain};

const MIB: u64 = 1 << 20;

/// Sends so many tasks of a tenth of a MiB.
async fn send_tenths(site: &Site, tenths: u64) {
    send_plain(site, (0..tenths).map(|n| Task { padding: "x".repeat(MIB as usize / 10), ..Task::new(n) }))
        .await;
}

/// An open transaction keeps the log from being emptied: the host says so when that matters, once more each time that the
/// log has doubled, and what to do. When the reader is gone the log shrinks, though nothing more is sent.
#[tokio::test]
async fn a_log_that_a_reader_keeps_growing_is_told_of_and_shrinks_when_the_reader_is_gone() {
    let site = Site::new();
    let mut host = actor(&site, &["plain"]).start();
    host.started().await;
    let log = PathBuf::from(format!("{}-wal", site.file().display()));
    let length = || fs::metadata(&log).unwrap().len();
    let told = || site.entries().iter().filter(|entry| entry.e == "log.grown").count();

    let reader = rusqlite::Connection::open(site.file()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM bus_message").unwrap();
    send_tenths(&site, 400).await;
    assert_eq!(told(), 0, "a burst is no reason to worry anyone: {}", length() / MIB);
    send_tenths(&site, 500).await;
    event(&site, "log.grown").await;
    send_tenths(&site, 800).await;
    until_true("it is told of once more", || told() == 2).await;
    let store = site.store();
    until_true("all is settled", || store.is_drained("plain")).await;
    assert_eq!(site.runs("plain").iter().filter(|run| run.count == 1).count(), 1700);
    assert!((128 * MIB..256 * MIB).contains(&length()), "{} MiB", length() / MIB);
    assert_eq!(told(), 2, "once for each doubling");
    let said = host.said();
    for words in ["bus.db", "somebody has been reading", "end what has a transaction open"] {
        assert!(said.contains(words), "{words} is missing from: {said}");
    }

    reader.execute_batch("COMMIT").unwrap();
    until_true("the log is short again", || length() <= 64 * MIB).await;
    event(&site, "log.shrunk").await;
    host.terminate();
    assert!(host.exit().await.success(), "{}", host.said());
}
