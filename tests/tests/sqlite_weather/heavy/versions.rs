//! Hosts of several versions on one file. (How a file is brought up to date is tested where the steps are.)

use bus_tests::site::Site;
use bus_tests::task::Task;
use bus_tests::wait::{PATIENCE, until_true};

use crate::{SHORT_CLAIMS, actor, answered, done, ends_saying, send_plain, sender, told};

/// The version that this code reads and writes.
const OURS: u32 = 3;

fn set_version(site: &Site, version: u32) {
    let sql = rusqlite::Connection::open(site.file()).unwrap();
    sql.busy_timeout(PATIENCE).unwrap();
    sql.execute_batch(&format!("PRAGMA user_version = {version}")).unwrap();
}

#[tokio::test]
async fn a_newer_file_is_refused_with_both_versions() {
    let site = Site::new();
    send_plain(&site, [Task::new(1)]).await;
    set_version(&site, OURS + 1);
    let mut host = actor(&site, &["plain"]).start();
    let words = ["newer version of bus", "its version: 4, ours: 3", "upgrade this program", "bus.db"];
    ends_saying(&mut host, PATIENCE, &words).await;
    set_version(&site, OURS);
    let host = actor(&site, &["plain"]).start();
    host.started().await;
    until_true("the task is done", || done(&site, "plain").len() == 1).await;
}

/// A newer program brings the file up to date beneath a host and a producer: neither writes to tables that it does not know.
/// What was acknowledged before is there for the newer one.
#[tokio::test]
async fn a_file_that_is_brought_up_to_date_beneath_a_host_ends_it() {
    let site = Site::new();
    let mut host = actor(&site, &["plain", "single"]).config(SHORT_CLAIMS).start();
    host.started().await;
    let producer = sender(&site, u64::MAX, 4).start();
    until_true("work goes on", || done(&site, "plain").len() > 50).await;
    set_version(&site, OURS + 1);
    let sql = rusqlite::Connection::open(site.file()).unwrap();
    let changed = |before: i64| {
        let now: i64 = sql.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap();
        now != before
    };
    let after: i64 = sql.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap();
    let words = ["changed to another version", "its version: 4", "ours: 3", "upgrade this program", "bus.db"];
    ends_saying(&mut host, PATIENCE, &words).await;
    assert!(told(&site, "store.lost"));
    site.entry("the producer is told", |entry| {
        entry.say.as_ref().is_some_and(|say| say.starts_with("Corrupt") && say.contains("another version"))
    })
    .await;
    drop(producer);
    assert!(!changed(after), "somebody has written to tables of another version");
    drop(sql);
    set_version(&site, OURS);
    let next = actor(&site, &["plain", "single"]).start();
    next.started().await;
    let sent = answered(&site, "sent");
    until_true("everything is done", || done(&site, "plain").is_superset(&sent)).await;
}
