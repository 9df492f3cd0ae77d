//! The file itself: whose it is, who may read it, what happens to it beneath us.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use bus::ErrorKind;
use futures_util::future::join_all;

use crate::store::{Store, command, open};

#[tokio::test]
async fn everything_is_for_this_user_only() {
    let store = Store::with(&["jobs"]).await;
    store.send("jobs", ["secret"]).await;
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(store.directory.path()).unwrap() {
        let path = entry.unwrap().path();
        let allowed = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), allowed, "{}", path.display());
        seen.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    for expected in ["bus.db", "bus.db-wal", "bus.db-shm", "bus.db.lock", "bus.db.wake"] {
        assert!(seen.iter().any(|name| name == expected), "{expected} in {seen:?}");
    }
    for entry in std::fs::read_dir(store.directory.path().join("bus.db.wake")).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
}

async fn refused(file: &std::path::Path) -> String {
    let error = open(file).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("bus.db"), "names the file: {error}");
    error.to_string()
}

#[tokio::test]
async fn another_programs_database_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bus.db");
    let theirs = rusqlite::Connection::open(&file).unwrap();
    theirs.execute_batch("CREATE TABLE theirs (id); PRAGMA user_version = 3").unwrap();
    assert!(refused(&file).await.contains("another program"));
    let tables: i64 = theirs.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    let journal: String = theirs.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!((tables, journal.as_str()), (1, "delete"));
}

#[tokio::test]
async fn what_is_no_database_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bus.db");
    let text = "this is the user's diary, and it is longer than a header\n".repeat(100);
    std::fs::write(&file, &text).unwrap();
    assert!(refused(&file).await.contains("no SQLite database"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[tokio::test]
async fn a_newer_versions_file_is_refused_with_both_versions() {
    let store = Store::new().await;
    store.transport.close().await;
    store.sql().execute_batch("PRAGMA user_version = 2").unwrap();
    let error = refused(&store.file()).await;
    assert!(
        error.contains("newer") && error.contains("its version: 2") && error.contains("ours: 1"),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = open(&directory.path().join("missing/bus.db")).await.err().unwrap();
    assert!(error.to_string().contains("missing/bus.db"), "{error}");
    assert!(!error.is_transient());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_file_can_be_opened_by_many_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bus.db");
    for opened in join_all((0..16).map(|_| open(&file))).await {
        let answer = opened.unwrap().sender().send(vec![command("jobs", "x")]).await.remove(0);
        answer.unwrap();
    }
}

/// The same, over and over: a file that another one is just making is neither empty nor somebody else's. (Its two marks
/// are read one after the other, and the other one's commit may lie between.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_that_is_just_being_made_is_not_taken_for_another_programs() {
    for round in 0..60 {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("bus.db");
        // They arrive while the first one is at it, a little later each.
        let opening = (0..8).map(|n| {
            let file = file.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_micros(400 * n)).await;
                open(&file).await.map(drop)
            })
        });
        for opened in join_all(opening).await {
            opened.unwrap().unwrap_or_else(|error| panic!("in round {round}: {error}"));
        }
    }
}

/// A message that went into a file which nobody else can find would be lost, though it was answered for.
#[tokio::test]
async fn a_file_replaced_beneath_us_takes_no_messages() {
    let store = Store::with(&["jobs"]).await;
    store.send("jobs", ["a"]).await;
    std::fs::rename(store.file(), store.directory.path().join("moved.db")).unwrap();
    let send = || async {
        let answer = store.transport.sender().send(vec![command("jobs", "b")]).await.remove(0);
        answer.map(drop).map_err(|e| (e.kind(), e.to_string().contains("replaced")))
    };
    assert_eq!(send().await, Err((ErrorKind::Unavailable, true)));
    std::fs::rename(store.directory.path().join("moved.db"), store.file()).unwrap();
    assert_eq!(send().await, Ok(()));
}

/// Someone who knows nothing of the gate writes too: an administrator, or the user's own transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_writer_is_waited_for() {
    let store = Store::with(&["jobs"]).await;
    let own = store.sql();
    own.execute_batch("BEGIN IMMEDIATE").unwrap();
    let sender = store.transport.sender();
    let mut sending = Box::pin(sender.send(vec![command("jobs", "a")]));
    assert!(futures_util::poll!(&mut sending).is_pending());
    own.execute_batch("COMMIT").unwrap();
    sending.await.remove(0).unwrap();
}
