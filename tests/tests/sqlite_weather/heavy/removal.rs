//! Files that are removed or replaced while they are open.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use bus_tests::site::{Process, Site};
use bus_tests::task::Task;
use bus_tests::wait::{PATIENCE, stays, until_true};

use crate::{
    SHORT_CLAIMS, actor, answered, assert_sound, done, ends_saying, event, send_plain, send_single, sender,
    told,
};

/// How long a file may be away, and a little.
const AWAY: Duration = Duration::from_secs(25);

/// A host at work on what a producer sends.
async fn at_work(site: &Site) -> (Process<'_>, Process<'_>) {
    let host = actor(site, &["plain", "single"]).config(SHORT_CLAIMS).start();
    host.started().await;
    let producer = sender(site, u64::MAX, 4).start();
    until_true("work goes on", || done(site, "plain").len() > 50).await;
    (host, producer)
}

fn beside(site: &Site, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", site.file().display()))
}

/// Everything that was acknowledged is done, before or after.
async fn everything_is_done(site: &Site) {
    assert_sound(site);
    let host = actor(site, &["plain", "single"]).start();
    host.started().await;
    let sent = answered(site, "sent");
    until_true("everything is done", || done(site, "plain").is_superset(&sent)).await;
}

/// The host ends by itself, and so does the use of the store in a producer; nothing is lost.
async fn removing_ends_the_host(suffixes: &[&str]) {
    let site = Site::new();
    let (mut host, producer) = at_work(&site).await;
    for suffix in suffixes {
        fs::remove_file(beside(&site, suffix)).unwrap();
    }
    let words = ["(-wal)", "removed or replaced", "start everything again", "bus.db"];
    ends_saying(&mut host, PATIENCE, &words).await;
    site.entry("the producer is told", |entry| {
        entry.say.as_ref().is_some_and(|say| say.contains("start everything again"))
    })
    .await;
    drop(producer);
    everything_is_done(&site).await;
}

#[tokio::test]
async fn removing_the_log_loses_nothing_and_ends_the_host() {
    removing_ends_the_host(&["-wal"]).await;
}

#[tokio::test]
async fn removing_the_index_loses_nothing_and_ends_the_host() {
    removing_ends_the_host(&["-shm"]).await;
}

#[tokio::test]
async fn removing_both_loses_nothing_and_ends_the_host() {
    removing_ends_the_host(&["-wal", "-shm"]).await;
}

/// A host that has nothing to do notices as well.
#[tokio::test]
async fn an_idle_host_finds_its_log_removed() {
    let site = Site::new();
    send_plain(&site, [Task::new(1)]).await;
    let mut host = actor(&site, &["plain"]).config(SHORT_CLAIMS).start();
    until_true("its task is done", || done(&site, "plain").len() == 1).await;
    until_true("it has nothing to do", || site.entries().iter().any(|entry| entry.e == "settle.ok")).await;
    fs::remove_file(beside(&site, "-wal")).unwrap();
    ends_saying(&mut host, PATIENCE, &["removed or replaced", "start everything again"]).await;
    everything_is_done(&site).await;
}

/// Hints to other processes get lost with it, and the gate's fairness: nothing else.
#[tokio::test]
async fn removing_the_other_side_files_does_no_harm() {
    let site = Site::new();
    let (mut host, producer) = at_work(&site).await;
    fs::remove_file(beside(&site, ".lock")).unwrap();
    fs::remove_dir_all(beside(&site, ".wake")).unwrap();
    fs::remove_file(beside(&site, ".reserve")).unwrap();
    let before = done(&site, "plain").len();
    until_true("work goes on", || done(&site, "plain").len() > before + 200).await;
    drop(producer);
    host.terminate();
    assert!(host.exit().await.success(), "{}", host.said());
    everything_is_done(&site).await;
}

/// Somebody exchanges the file and thinks better of it: nothing happens meanwhile, and everything goes on afterwards.
#[tokio::test]
async fn a_file_that_comes_back_is_gone_on_with() {
    let site = Site::new();
    let (mut host, producer) = at_work(&site).await;
    let aside = site.path("aside");
    fs::rename(site.file(), &aside).unwrap();
    event(&site, "file.away").await;
    let refused = |entry: &bus_tests::journal::Entry| {
        entry.say.as_ref().is_some_and(|say| say.contains("replaced or removed while it was open"))
    };
    site.entry("a send is refused", refused).await;
    let claimed = site.runs("plain").len();
    stays("nothing is claimed", Duration::from_secs(2), || site.runs("plain").len() <= claimed + 100).await;
    fs::rename(&aside, site.file()).unwrap();
    event(&site, "file.back").await;
    let before = done(&site, "plain").len();
    until_true("work goes on", || done(&site, "plain").len() > before + 50).await;
    drop(producer);
    host.terminate();
    assert!(host.exit().await.success(), "{}", host.said());
    everything_is_done(&site).await;
}

/// The singleton's lock counts as lost at once, and the host ends when the file does not come back. Its log stays, so that
/// a start without the file is refused, and one with it finds everything.
#[tokio::test]
async fn a_file_that_is_removed_ends_the_host_and_keeps_its_log() {
    let site = Site::new();
    let (mut host, producer) = at_work(&site).await;
    send_single(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    site.begun("single", 1).await;
    // Moved where nobody finds it: with it removed there would be nothing to be found afterwards.
    let aside = site.path("aside");
    fs::rename(site.file(), &aside).unwrap();
    ends_saying(&mut host, AWAY, &["did not come back", "put the right one in its place", "bus.db"]).await;
    assert!(told(&site, "lock.lost"));
    drop(producer);
    let mut refused = actor(&site, &["plain"]).start();
    ends_saying(&mut refused, PATIENCE, &["missing or empty", "put the file back"]).await;
    fs::rename(&aside, site.file()).unwrap();
    site.allow("go");
    everything_is_done(&site).await;
    until_true("the singleton's task is done", || done(&site, "single").len() == 1).await;
}

/// A backup that is put in the file's place gets a log of its own: two sound stores do not become one that is damaged.
#[tokio::test]
async fn a_file_that_is_replaced_ends_the_host_and_is_sound_for_the_next() {
    let site = Site::new();
    send_plain(&site, [Task::new(1_000_000)]).await;
    let backup = site.path("backup");
    fs::copy(site.file(), &backup).unwrap();
    let (mut host, producer) = at_work(&site).await;
    let log = fs::metadata(beside(&site, "-wal")).unwrap().len();
    assert!(log > 0);
    fs::rename(&backup, site.file()).unwrap();
    until_true("its log is moved aside", || beside(&site, "-wal.replaced").exists()).await;
    ends_saying(&mut host, AWAY, &["was replaced or removed", "did not come back"]).await;
    drop(producer);
    assert!(fs::metadata(beside(&site, "-wal.replaced")).unwrap().len() >= log);
    assert_sound(&site);
    let next = actor(&site, &["plain"]).start();
    next.started().await;
    let pid = next.pid();
    until_true("what the backup had is done again", || {
        site.runs("plain").iter().any(|run| run.p == pid && run.m == 1_000_000)
    })
    .await;
}
