//! What is under the path when a host starts, and is no store: it is left alone.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

use bus_tests::site::Site;
use bus_tests::wait::PATIENCE;

use crate::{actor, answered, done, ends_saying, send_plain, sender};
use bus_tests::task::Task;
use bus_tests::wait::until_true;

/// A host does not start on what is there, says this, and makes no file of SQLite's beside it.
async fn is_refused(site: &Site, words: &[&str]) {
    let mut host = actor(site, &["plain"]).start();
    let path = site.file().display().to_string();
    ends_saying(&mut host, PATIENCE, &[words, &[path.as_str()]].concat()).await;
    for side_file in ["-wal", "-shm", "-journal"] {
        assert!(!Path::new(&format!("{path}{side_file}")).exists(), "{side_file} was made");
    }
}

/// The same, and the file is as it was.
async fn is_left_alone(content: &[u8], words: &[&str]) {
    let site = Site::new();
    fs::write(site.file(), content).unwrap();
    is_refused(&site, words).await;
    assert_eq!(fs::read(site.file()).unwrap(), content);
}

/// A store with messages in it, whose log is in the file, and their numbers.
async fn filled_store() -> Site {
    let site = Site::new();
    send_plain(&site, (0..2000).map(Task::new)).await;
    site
}

#[tokio::test]
async fn a_text_file_is_refused() {
    is_left_alone(&b"this is somebody's diary\n".repeat(1000), &["no SQLite database", "name another file"])
        .await;
}

#[tokio::test]
async fn garbage_behind_the_right_header_is_refused() {
    let mut content = b"SQLite format 3\0".to_vec();
    content.extend((0..20_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8));
    is_left_alone(&content, &["no SQLite database"]).await;
}

#[tokio::test]
async fn a_database_of_another_program_is_refused() {
    let site = Site::new();
    let theirs = rusqlite::Connection::open(site.file()).unwrap();
    theirs.execute_batch("CREATE TABLE theirs (id); INSERT INTO theirs VALUES (1)").unwrap();
    drop(theirs);
    let before = fs::read(site.file()).unwrap();
    is_refused(&site, &["another program", "name a file of its own"]).await;
    assert_eq!(fs::read(site.file()).unwrap(), before);
}

#[tokio::test]
async fn a_directory_is_refused() {
    let site = Site::new();
    fs::create_dir(site.file()).unwrap();
    is_refused(&site, &["is a directory", "name a file in it"]).await;
}

/// SQLite would open it, and find out later.
#[tokio::test]
async fn a_pipe_and_a_socket_are_refused() {
    let site = Site::new();
    let made = std::process::Command::new("mkfifo").arg(site.file()).status().unwrap();
    assert!(made.success());
    is_refused(&site, &["is a pipe", "name a regular file"]).await;
    fs::remove_file(site.file()).unwrap();
    let _socket = UnixListener::bind(site.file()).unwrap();
    is_refused(&site, &["a socket", "name a regular file"]).await;
}

#[tokio::test]
async fn a_store_that_was_cut_in_half_is_refused() {
    let site = filled_store().await;
    let length = fs::metadata(site.file()).unwrap().len();
    fs::File::options().write(true).open(site.file()).unwrap().set_len(length / 2).unwrap();
    is_refused(&site, &["damaged", "restore it from a backup", ".recover"]).await;
    assert_eq!(fs::metadata(site.file()).unwrap().len(), length / 2);
}

/// SQLite would remove the log, and with it what was committed since the file was last complete.
#[tokio::test]
async fn a_missing_or_emptied_file_does_not_cost_its_log() {
    let site = Site::new();
    send_plain(&site, [Task::new(1)]).await;
    // As a crash leaves it: the log is there.
    let mut killed = actor(&site, &["plain"]).start();
    killed.started().await;
    send_plain(&site, [Task::new(2)]).await;
    until_true("both are done", || done(&site, "plain").len() == 2).await;
    killed.kill();
    let log = site.file().with_extension("db-wal");
    let before = fs::read(&log).unwrap();
    assert!(!before.is_empty(), "the log is there");

    let kept = site.path("kept");
    fs::rename(site.file(), &kept).unwrap();
    for emptied in [false, true] {
        if emptied {
            fs::write(site.file(), "").unwrap();
        }
        let mut host = actor(&site, &["plain"]).start();
        let words = ["missing or empty", "put the file back", log.to_str().unwrap()];
        ends_saying(&mut host, PATIENCE, &words).await;
        assert_eq!(fs::read(&log).unwrap(), before);
    }
    fs::rename(&kept, site.file()).unwrap();
    let host = actor(&site, &["plain"]).start();
    host.started().await;
    assert!(site.store().is_drained("plain"));
}

/// An empty file is what `touch` makes, or a removed store's place: it becomes a store, and if there was one before, that is
/// said.
#[tokio::test]
async fn an_empty_file_becomes_a_store() {
    let site = Site::new();
    fs::write(site.file(), "").unwrap();
    let mut host = actor(&site, &["plain"]).start();
    host.started().await;
    sender(&site, 3, 1).start().exit().await;
    until_true("all are done", || done(&site, "plain") == answered(&site, "sent")).await;
    assert!(host.said().contains("a new store was made"), "{}", host.said());
    host.terminate();
    assert!(host.exit().await.success());

    fs::remove_file(site.file()).unwrap();
    let again = actor(&site, &["plain"]).start();
    again.started().await;
    assert!(again.said().contains("there has been one here before"), "{}", again.said());
}
