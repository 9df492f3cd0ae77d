//! Where the directory lies, and how far its locks reach.

use std::fs;

use bus::contract::Reach;
use bus::{ErrorKind, Host};

use crate::open;

/// A fleet's locks are not kept where no other machine can see them; a wiring that asks for it is found wanting at start.
#[tokio::test]
async fn a_disk_of_this_machine_is_refused_for_a_fleet() {
    let directory = tempfile::tempdir().unwrap();
    let refused = open(directory.path(), "?reach=fleet").await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("file_system=any"), "{refused}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was made in it");
    let any = open(directory.path(), "?reach=fleet&file_system=any").await.unwrap();
    let guarantees = any.guarantees();
    assert_eq!(guarantees.reach, Reach::Fleet);
    assert!(!guarantees.watch);
}

#[tokio::test]
async fn what_is_no_directory_is_refused_by_name() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    let error = open(&file, "").await.err().unwrap();
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    let error = open(&parent.path().join("missing/locks"), "").await.err().unwrap();
    assert!(error.to_string().contains("has to exist"), "{error}");
}

/// It carries no messages, and says so.
#[tokio::test]
async fn it_is_no_transport() {
    let error = Host::builder().transport("default", "file:///tmp").connect().await.err().unwrap();
    assert!(error.to_string().contains("file://"), "{error}");
}
