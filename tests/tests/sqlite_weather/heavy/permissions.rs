//! What the process may not do to the file or its directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bus_tests::mount::{SmallDisk, where_we_may_mount};
use bus_tests::site::Site;
use bus_tests::task::Task;
use bus_tests::wait::{PATIENCE, until_true};

use crate::{actor, done, ends_saying, send_plain};

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A store in a directory of its own, with one task in it.
async fn store() -> Site {
    let site = Site::with_store("home/bus.db");
    fs::create_dir(site.path("home")).unwrap();
    send_plain(&site, [Task::new(1)]).await;
    site
}

/// A host refuses to start and says this; afterwards, when everything is allowed again, it starts and does its work: the
/// refusal has left nothing in its own way.
async fn is_refused_until(site: &Site, words: &[&str], allow_again: impl FnOnce()) {
    let names = || {
        let files = fs::read_dir(site.path("home")).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let mut refused = actor(site, &["plain"]).heeding_permissions().start();
    ends_saying(&mut refused, PATIENCE, words).await;
    assert_eq!(names(), before);
    allow_again();
    let host = actor(site, &["plain"]).heeding_permissions().start();
    host.started().await;
    until_true("the task is done", || done(site, "plain").len() == 1).await;
}

/// SQLite would open it for reading without a word, and leave side files that nobody may write to.
#[tokio::test]
async fn a_file_that_may_only_be_read_is_refused() {
    let site = store().await;
    allow(&site.file(), 0o444);
    let path = site.file();
    let words = ["readable and writable by this user", path.to_str().unwrap(), "Permission denied"];
    is_refused_until(&site, &words, || allow(&path, 0o600)).await;
}

#[tokio::test]
async fn a_file_that_may_not_even_be_read_is_refused() {
    let site = store().await;
    allow(&site.file(), 0o000);
    let path = site.file();
    let words = ["readable and writable by this user", path.to_str().unwrap(), "Permission denied"];
    is_refused_until(&site, &words, || allow(&path, 0o600)).await;
}

#[tokio::test]
async fn a_directory_that_may_only_be_read_is_refused() {
    let site = store().await;
    let home = site.path("home");
    allow(&home, 0o555);
    let words = ["directory has to be writable by this user", "bus.db", "Permission denied"];
    is_refused_until(&site, &words, || allow(&home, 0o755)).await;
}

#[tokio::test]
async fn a_directory_in_which_no_file_can_be_made_is_refused() {
    let site = Site::with_store("home/bus.db");
    fs::create_dir(site.path("home")).unwrap();
    allow(&site.path("home"), 0o555);
    let mut refused = actor(&site, &["plain"]).heeding_permissions().start();
    ends_saying(&mut refused, PATIENCE, &["cannot create the file", "has to be writable", "home/bus.db"])
        .await;
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let site = Site::with_store("home/bus.db");
    let mut refused = actor(&site, &["plain"]).start();
    ends_saying(&mut refused, PATIENCE, &["its directory has to exist", "home/bus.db"]).await;
    assert!(!site.path("home").exists());
}

#[tokio::test]
async fn a_side_file_of_somebody_elses_is_named() {
    let site = store().await;
    let gate = site.path("home/bus.db.lock");
    allow(&gate, 0o000);
    let words = ["side file has to be readable and writable", "bus.db.lock"];
    is_refused_until(&site, &words, || allow(&gate, 0o600)).await;
}

#[test]
fn a_disk_that_may_only_be_read_is_refused() {
    where_we_may_mount("heavy::permissions::a_disk_that_may_only_be_read_is_refused", || async {
        let site = Site::with_store("disk/bus.db");
        let disk = SmallDisk::mount(site.path("disk"), 64);
        send_plain(&site, [Task::new(1)]).await;
        disk.make_read_only();
        let mut refused = actor(&site, &["plain"]).start();
        ends_saying(&mut refused, PATIENCE, &["writable", "disk/bus.db", "Read-only file system"]).await;
    });
}
