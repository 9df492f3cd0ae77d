//! What is done to the files and to the directory beneath those who use them.

use std::fs;

use bus::ErrorKind;
use bus::contract::{Lease, LockId, Owner, Renewal};

use crate::{LEASE, Locks, open};

/// S8, S13: whatever is done to the file of a lock that is held, the holder has lost it at its next renewal, and ending its
/// term changes nothing. What is left is not taken for a lock that nobody holds, unless the file is gone.
#[tokio::test]
async fn a_file_that_is_not_what_was_written_is_loss() {
    type Fault = fn(&Locks);
    let faults: [(&str, Fault, bool); 6] = [
        ("removed", |locks| fs::remove_file(locks.file()).unwrap(), false),
        (
            "replaced by a copy",
            |locks| {
                let bytes = fs::read(locks.file()).unwrap();
                let copy = locks.directory().join("copy");
                fs::write(&copy, bytes).unwrap();
                fs::rename(copy, locks.file()).unwrap();
            },
            false,
        ),
        ("emptied", |locks| drop(fs::File::create(locks.file()).unwrap()), true),
        (
            "cut off",
            |locks| {
                let file = fs::File::options().write(true).open(locks.file()).unwrap();
                file.set_len(40).unwrap();
            },
            true,
        ),
        ("overwritten", |locks| fs::write(locks.file(), "something else\n".repeat(2000)).unwrap(), true),
        (
            "of another lock",
            |locks| {
                let other = fs::read(locks.directory().join("queue.other.lock")).unwrap();
                fs::write(locks.file(), other).unwrap();
            },
            true,
        ),
    ];
    for (fault, inject, is_damaged) in faults {
        let locks = Locks::new().await;
        locks.one.try_lock(&LockId::from("queue/other"), LEASE, Owner::fresh()).await.unwrap().unwrap();
        let lease = locks.take(&locks.one).await.unwrap();
        assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
        inject(&locks);
        let before = fs::read(locks.file()).ok();
        for _ in 0..2 {
            assert_eq!(lease.renew().await.unwrap(), Renewal::Lost, "{fault}");
        }
        lease.note(b"late".to_vec()).await.unwrap();
        lease.release(bus::contract::Ended::Clean).await.unwrap();
        assert_eq!(fs::read(locks.file()).ok(), before, "{fault}: nothing was written");
        if is_damaged {
            let refused = locks.try_take(&locks.two).await.err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::Corrupt, "{fault}: {refused}");
            assert!(refused.to_string().contains("remove"), "{fault}: {refused}");
            fs::remove_file(locks.file()).unwrap();
            let next = locks.take(&locks.two).await.unwrap();
            assert!(next.fence() > lease.fence(), "{fault}");
        }
    }
}

/// A copy that was made earlier is brought back, into the same file: its record is of this term, but older.
#[tokio::test]
async fn an_earlier_copy_brought_back_is_loss() {
    let locks = Locks::new().await;
    let lease = locks.take(&locks.one).await.unwrap();
    let copy = fs::read(locks.file()).unwrap();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
    fs::write(locks.file(), copy).unwrap();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
}

/// Nobody gives a lock in a directory that has taken the place of the one that was opened, as an unmounted one's mount
/// point does; back in its place it serves again, and what was held is still held.
#[tokio::test]
async fn another_directory_in_its_place_is_loss_for_holders_and_an_error_for_candidates() {
    let locks = Locks::new().await;
    let lease = locks.take(&locks.one).await.unwrap();
    let aside = locks.directory().with_extension("aside");
    fs::rename(locks.directory(), &aside).unwrap();
    let expect_away = async |what: &str| {
        assert_eq!(lease.renew().await.unwrap(), Renewal::Lost, "{what}");
        let error = locks.try_take(&locks.two).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {error}");
        assert!(error.to_string().contains("unmounted"), "{what}: {error}");
    };
    expect_away("there is none").await;
    fs::create_dir(locks.directory()).unwrap();
    expect_away("an empty one").await;
    let anew = open(&locks.directory(), "").await.unwrap();
    expect_away("one of another host").await;
    let authority = |locks: &dyn bus::contract::LockManager| locks.guarantees().authority;
    assert_ne!(authority(&*anew), authority(&*locks.one), "it passes for another lock manager");
    assert_eq!(fs::read_dir(locks.directory()).unwrap().count(), 1, "nothing was made in it");
    fs::remove_dir_all(locks.directory()).unwrap();
    fs::rename(&aside, locks.directory()).unwrap();
    assert!(locks.take(&locks.two).await.is_none());
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
}

/// The same directory by another path, as it is mounted elsewhere, is the same lock manager.
#[tokio::test]
async fn a_directory_is_the_same_wherever_it_is_mounted() {
    let locks = Locks::new().await;
    let link = locks.directory().with_extension("link");
    std::os::unix::fs::symlink(locks.directory(), &link).unwrap();
    let linked = open(&link, "").await.unwrap();
    assert_eq!(linked.guarantees().authority, locks.one.guarantees().authority);
    let _lease: Box<dyn Lease> = locks.take(&locks.one).await.unwrap();
    assert!(locks.take(&linked).await.is_none());
}

/// What processes have left that died while they made a file goes with a later start; what is fresh stays.
#[tokio::test]
async fn what_was_left_half_made_is_removed_by_a_later_start() {
    let locks = Locks::new().await;
    let (old, fresh) = (locks.directory().join(".old.new"), locks.directory().join(".fresh.new"));
    for path in [&old, &fresh] {
        fs::write(path, "half").unwrap();
    }
    let hours_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    fs::File::options().write(true).open(&old).unwrap().set_modified(hours_ago).unwrap();
    let _locks = open(&locks.directory(), "").await.unwrap();
    assert!(!old.exists() && fresh.exists());
}
