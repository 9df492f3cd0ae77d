//! A file that is damaged while a host works on it: the host stops using it and ends, and what is left of it is left alone.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::time::Duration;

use bus_tests::site::{Process, Site};
use bus_tests::task::Task;
use bus_tests::wait::{PATIENCE, until_true};

use crate::{SHORT_CLAIMS, actor, assert_sound, done, ends_saying, event, send_plain, sender};

/// A host that has something in its hands, on a store so large that most of it is in neither a cache nor the log.
async fn at_work(site: &Site) -> Process<'_> {
    send_plain(site, (0..6000).map(|n| Task::new(n).wait_for(&site.path("go")))).await;
    let host = actor(site, &["plain", "single"]).config(SHORT_CLAIMS).start();
    site.begun("plain", 0).await;
    host
}

/// The host finds out when it goes on, and ends; what it says is told to whoever sends, too.
async fn ends(site: &Site, mut host: Process<'_>, words: &[&str]) {
    let path = site.file().display().to_string();
    site.allow("go");
    ends_saying(&mut host, PATIENCE, &[words, &[path.as_str()]].concat()).await;
    let lost = event(site, "store.lost").await;
    assert_eq!(lost.p, host.pid());
}

fn open(site: &Site) -> File {
    File::options().write(true).open(site.file()).unwrap()
}

#[tokio::test]
async fn a_file_that_is_cut_off() {
    let site = Site::new();
    let host = at_work(&site).await;
    let length = fs::metadata(site.file()).unwrap().len();
    open(&site).set_len(length / 4 / 4096 * 4096).unwrap();
    ends(&site, host, &["damaged", "restore it from a backup"]).await;
}

/// Opened anew, an empty file would cost its log. The producer beside it learns of it too, and acknowledges nothing more.
#[tokio::test]
async fn a_file_that_is_emptied() {
    let site = Site::new();
    let host = at_work(&site).await;
    let producer = sender(&site, u64::MAX, 2).start();
    event(&site, "sent").await;
    open(&site).set_len(0).unwrap();
    ends(&site, host, &["emptied", "restore it from a backup"]).await;
    let refused = site.entry("a send is refused", |entry| {
        entry.say.as_ref().is_some_and(|say| say.starts_with("Corrupt") && say.contains("emptied"))
    });
    refused.await;
    drop(producer);
    let log = fs::metadata(site.file().with_extension("db-wal")).expect("the log is still there");
    assert!(log.len() > 0);
}

#[tokio::test]
async fn pages_that_are_overwritten() {
    let site = Site::new();
    let host = at_work(&site).await;
    overwrite(&site);
    ends(&site, host, &["damaged", "restore it from a backup"]).await;
}

/// Puts garbage into the middle of the file.
fn overwrite(site: &Site) {
    let length = fs::metadata(site.file()).unwrap().len();
    let mut file = open(site);
    file.seek(SeekFrom::Start(length / 8)).unwrap();
    let garbage: Vec<u8> =
        (0..length * 3 / 4).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    file.write_all(&garbage).unwrap();
}

/// The same while nothing ran: the host starts, since not all of the file is read for that, and ends as soon as it finds out.
#[tokio::test]
async fn pages_that_were_overwritten_before_the_start() {
    let site = Site::new();
    send_plain(&site, (0..3000).map(Task::new)).await;
    overwrite(&site);
    let mut host = actor(&site, &["plain"]).start();
    ends_saying(&mut host, PATIENCE, &["damaged", "restore it from a backup", "bus.db"]).await;
    event(&site, "store.lost").await;
}

/// What `cp diary.txt bus.db` does: the same file, with other content.
#[tokio::test]
async fn a_text_that_is_written_over_the_store() {
    let site = Site::new();
    let host = at_work(&site).await;
    let text = "this is somebody's diary\n".repeat(4000);
    fs::write(site.file(), &text).unwrap();
    site.allow("go");
    let mut host = host;
    let (status, _) = host.exit_within(PATIENCE).await;
    assert!(status.code().is_some_and(|code| code != 0), "{status}");
    event(&site, "store.lost").await;
    assert!(host.said().contains("restore it from a backup"), "{}", host.said());
    // Whoever starts next is told what it has before it.
    let mut next = actor(&site, &["plain"]).start();
    let (status, _) = next.exit_within(PATIENCE).await;
    assert!(!status.success(), "{}", next.said());
}

#[tokio::test]
async fn a_log_that_is_cut_off() {
    let site = Site::new();
    let mut host = at_work(&site).await;
    File::options().write(true).open(site.file().with_extension("db-wal")).unwrap().set_len(0).unwrap();
    site.allow("go");
    // Which of the two it is depends on what is read first.
    let (status, _) = host.exit_within(Duration::from_secs(30)).await;
    assert!(status.code().is_some_and(|code| code != 0), "{status}");
    event(&site, "store.lost").await;
    assert!(host.said().contains("restore it from a backup"), "{}", host.said());
}

/// The index is mapped into memory, so that the system ends the process at its next look into it. It is made anew by whoever
/// starts next, and nothing is lost.
#[tokio::test]
async fn an_index_that_is_cut_off() {
    let site = Site::new();
    let mut host = at_work(&site).await;
    File::options().write(true).open(site.file().with_extension("db-shm")).unwrap().set_len(0).unwrap();
    let (status, _) = host.exit_within(PATIENCE).await;
    assert!(!status.success(), "{status}");
    assert_sound(&site);
    site.allow("go");
    let next = actor(&site, &["plain"]).start();
    next.started().await;
    let store = site.store();
    until_true("everything is settled", || store.is_drained("plain")).await;
    assert_eq!(done(&site, "plain").len(), 6000);
}
