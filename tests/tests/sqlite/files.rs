//! The file itself: whose it is, who may read it, what happens to it beneath us.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use bus::ErrorKind;
use bus::contract::{Attended, DroppedSubscription, Durability};
use bus_tests::wait::{in_time, until_true};
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

#[tokio::test]
async fn an_acknowledgement_is_worth_what_the_file_is_set_to() {
    let directory = tempfile::tempdir().unwrap();
    for (setting, outlives) in [("FULL", Durability::Synced), ("NORMAL", Durability::Written)] {
        let file = directory.path().join(format!("bus.db?synchronous={setting}"));
        let guarantees = open(&file).await.unwrap().guarantees();
        assert_eq!(guarantees.durability, outlives);
        assert!(guarantees.acknowledgement.contains(setting), "{}", guarantees.acknowledgement);
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
    store.sql().execute_batch("PRAGMA user_version = 4").unwrap();
    let error = refused(&store.file()).await;
    assert!(
        error.contains("newer") && error.contains("its version: 4") && error.contains("ours: 3"),
        "{error}"
    );
}

/// As version 1 left it: without the table of readers, what clocks have shown, and what is kept of messages.
#[tokio::test]
async fn an_older_versions_file_is_brought_up_to_date_and_keeps_what_is_in_it() {
    let store = Store::with(&["jobs", "topic/reader"]).await;
    store.send("jobs", ["kept"]).await;
    store.transport.close().await;
    store
        .sql()
        .execute_batch(
            "DROP TABLE bus_reader; ALTER TABLE bus_boot DROP COLUMN seen; ALTER TABLE bus_message DROP COLUMN kept;
             PRAGMA user_version = 1",
        )
        .unwrap();
    let transport = open(&store.file()).await.unwrap();
    let readers = transport.capabilities().readers.unwrap();
    let reader = bus::Endpoint::parse("topic/reader").unwrap();
    readers.attend(&[Attended::new(reader.clone())]).await.unwrap();
    let readings = readers.readings().await.unwrap();
    assert!(readings[1].endpoint == reader && readings[1].attended.is_some(), "{readings:?}");
    assert!(readings[0].oldest.is_some(), "{readings:?}");
    let version: i32 = store.sql().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 3);
}

/// A number that an endpoint has had is no other one's, even if it was the last: a consumer that does not know yet that its
/// subscription is gone reads nobody else's messages.
#[tokio::test]
async fn a_dropped_subscriptions_number_is_not_given_again() {
    let store = Store::with(&["jobs", "topic/last"]).await;
    let number = |name: &str| -> i64 {
        let find = "SELECT id FROM bus_endpoint WHERE name = ?1";
        store.sql().query_row(find, [name], |row| row.get(0)).unwrap()
    };
    let dropped = number("topic/last");
    let readers = store.transport.capabilities().readers.unwrap();
    let last = bus::Endpoint::parse("topic/last").unwrap();
    let answer = readers.drop_subscription(&last, Duration::ZERO).await.unwrap();
    assert_eq!(answer, DroppedSubscription::Done);
    store.prepare(&["next", "topic/last"]).await;
    assert!(number("next") > dropped && number("topic/last") > dropped);
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

/// The log of a store whose file was exchanged is moved out of the new file's way; and so is that of the next one, beside
/// the first, which may hold the last that is known of its messages.
#[tokio::test]
async fn a_log_that_is_moved_aside_takes_no_other_ones_place() {
    let directory = tempfile::tempdir().unwrap();
    let (file, mut aside) = (directory.path().join("bus.db"), Vec::new());
    for name in ["bus.db-wal.replaced", "bus.db-wal.replaced.2"] {
        let transport = open(&file).await.unwrap();
        transport.sender().send(vec![command("jobs", name)]).await.remove(0).unwrap();
        let log = std::fs::read(directory.path().join("bus.db-wal")).unwrap();
        let spare = Store::new().await;
        spare.transport.close().await;
        let other = directory.path().join("other.db");
        std::fs::copy(spare.file(), &other).unwrap();
        std::fs::rename(&other, &file).unwrap();
        transport.sender().send(vec![command("jobs", "too late")]).await.remove(0).unwrap_err();
        aside.push((directory.path().join(name), log));
        for (path, log) in &aside {
            assert!(std::fs::read(path).unwrap() == *log, "{}", path.display());
        }
    }
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

/// How many files of this process are open under a path.
#[cfg(target_os = "linux")]
fn handles(path: &std::path::Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    open.filter(|entry| {
        entry.as_ref().is_ok_and(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to == path))
    })
    .count()
}

/// A process that was frozen while it wrote may hold everyone up who opens the store. However often a host tries that and
/// gives up, it costs one thread, and what that has open; and when the other goes on, nothing of it is left.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn openings_that_were_given_up_leave_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let (path, gate_path) = (directory.path().join("bus.db"), directory.path().join("bus.db.lock"));
    let gate = std::fs::File::create(&gate_path).unwrap();
    gate.lock().unwrap();
    for _ in 0..20 {
        let opening = tokio::time::timeout(Duration::from_millis(50), open(&path));
        assert!(opening.await.is_err(), "it passed a gate that is closed");
    }
    assert_eq!(handles(&gate_path), 2, "the test has one of them");
    gate.unlock().unwrap();
    let transport = in_time("it opens", open(&path)).await.unwrap();
    transport.close().await;
    drop(transport);
    drop(gate);
    until_true("all is closed", || handles(&gate_path) + handles(&path) == 0).await;
}
