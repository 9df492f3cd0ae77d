//! Disks that are full, may only be read, or lie over one another.

use std::fs;
use std::path::Path;
use std::process::Command;

use bus::ErrorKind;
use bus::contract::{Ended, LockId, Owner, Renewal};
use bus_tests::mount::{SmallDisk, where_we_may_mount};

use crate::{LEASE, open};

/// The directory of the tests' locks on a disk of its own.
fn disk(parent: &Path) -> SmallDisk {
    SmallDisk::mount(parent.join("disk"), 1)
}

/// Locks that were held once have room kept for them: they are renewed, ended and taken over on a full disk. Only a lock
/// that is new has to wait for room.
#[test]
fn a_full_disk_costs_nobody_a_lock() {
    where_we_may_mount("heavy_disks::a_full_disk_costs_nobody_a_lock", || async {
        let parent = tempfile::tempdir().unwrap();
        let disk = disk(parent.path());
        let directory = disk.path().join("locks");
        let (one, two) = (open(&directory, "").await.unwrap(), open(&directory, "").await.unwrap());
        let id = LockId::from("queue/it");
        let lease = one.try_lock(&id, LEASE, Owner::fresh()).await.unwrap().unwrap();
        let filler = disk.fill("filler");
        for _ in 0..3 {
            assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
        }
        lease.note(vec![0; 1024]).await.unwrap();
        lease.release(Ended::Clean).await.unwrap();
        let next = two.try_lock(&id, LEASE, Owner::fresh()).await.unwrap().unwrap();
        assert!(next.fence() > lease.fence());

        let new = LockId::from("queue/new");
        let full = two.try_lock(&new, LEASE, Owner::fresh()).await.err().unwrap();
        assert!(full.is_transient() && full.to_string().contains("full"), "{full:?}");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "nothing is left half made");
        fs::remove_file(filler).unwrap();
        assert!(two.try_lock(&new, LEASE, Owner::fresh()).await.unwrap().is_some());
    });
}

/// A disk that may only be read is said to be one, at start and later; who only looks can.
#[test]
fn a_disk_that_may_only_be_read_is_said_to_be_one() {
    where_we_may_mount("heavy_disks::a_disk_that_may_only_be_read_is_said_to_be_one", || async {
        let parent = tempfile::tempdir().unwrap();
        let disk = disk(parent.path());
        let directory = disk.path().join("locks");
        let locks = open(&directory, "").await.unwrap();
        let id = LockId::from("queue/it");
        let lease = locks.try_lock(&id, LEASE, Owner::fresh()).await.unwrap().unwrap();
        disk.make_read_only();
        let error = lease.renew().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("only be read"), "{error:?}");
        let error = open(&directory, "").await.err().unwrap();
        assert!(error.to_string().contains("only be read"), "{error:?}");
        let looking = bus::contract::OpenOptions::default().existing();
        let looking = crate::open_with(&directory, "", looking).await.unwrap();
        assert!(looking.inspect(&id).await.unwrap().unwrap().held_for.is_some());
    });
}

/// S6: something else is mounted over the directory: the holder has lost, and nobody takes the lock in what is seen now.
/// Unmounted, it is as it was.
#[test]
fn a_directory_that_is_mounted_over_is_loss() {
    where_we_may_mount("heavy_disks::a_directory_that_is_mounted_over_is_loss", || async {
        let parent = tempfile::tempdir().unwrap();
        let disk = disk(parent.path());
        let directory = disk.path().join("locks");
        let locks = open(&directory, "").await.unwrap();
        let id = LockId::from("queue/it");
        let lease = locks.try_lock(&id, LEASE, Owner::fresh()).await.unwrap().unwrap();
        let over =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&directory).status();
        assert!(over.unwrap().success());
        assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
        let error = locks.try_lock(&id, LEASE, Owner::fresh()).await.err().unwrap();
        assert!(error.to_string().contains("unmounted"), "{error:?}");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        assert!(Command::new("umount").arg(&directory).status().unwrap().success());
        assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
        assert!(locks.try_lock(&id, LEASE, Owner::fresh()).await.unwrap().is_none());
    });
}
