//! The lock manager.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use bus::ErrorKind;
use bus::contract::{Ended, LockId, OpenOptions, Owner, Renewal};

use crate::{LEASE, Locks, PATIENCE, open_with};

/// S7: the fence outlives release and crash, and grows where a file is gone as well, since it follows the clock.
#[tokio::test]
async fn the_fence_grows_whatever_was_lost() {
    let locks = Locks::new().await;
    let before = locks.take(&locks.one).await.unwrap();
    before.release(Ended::Clean).await.unwrap();
    let next = locks.take(&locks.two).await.unwrap();
    assert!(next.fence() > before.fence());
    fs::remove_file(locks.file()).unwrap();
    assert!(locks.take(&locks.two).await.unwrap().fence() > next.fence());
}

/// S13: past its end there is no renewal, only a fresh acquisition with a new fence.
#[tokio::test]
async fn a_lease_that_has_run_out_cannot_be_renewed() {
    let locks = Locks::new().await;
    let (brief, owner) = (Duration::from_secs(1), Owner::fresh());
    let lease = locks.one.try_lock(&locks.id, brief, owner).await.unwrap().unwrap();
    // What is waited for is the passing of time itself.
    tokio::time::sleep(brief).await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
    let anew = locks.one.try_lock(&locks.id, brief, owner).await.unwrap().unwrap();
    assert!(anew.fence() > lease.fence());
}

/// S28: a planned take-over does not wait for a poll, and a release between asking and watching is not missed.
#[tokio::test]
async fn a_watch_tells_of_a_release() {
    let locks = Locks::new().await;
    assert!(locks.two.guarantees().watch);
    for released_before_watching in [false, true] {
        let lease = locks.take(&locks.one).await.unwrap();
        assert!(locks.take(&locks.two).await.is_none());
        if released_before_watching {
            lease.release(Ended::Clean).await.unwrap();
            tokio::time::timeout(PATIENCE, locks.two.watch(&locks.id)).await.unwrap();
        } else {
            let release = lease.release(Ended::Clean);
            let both = async { tokio::join!(locks.two.watch(&locks.id), release).1 };
            tokio::time::timeout(PATIENCE, both).await.unwrap().unwrap();
        }
        locks.take(&locks.two).await.unwrap().release(Ended::Clean).await.unwrap();
    }
}

/// M12: somebody keeps the file locked for long, as a process does that was frozen just then: calls end all the same, who
/// only looks is answered, and when it is over everything goes on.
#[tokio::test]
async fn a_call_ends_in_time_though_the_file_is_locked() {
    let locks = Locks::new().await;
    let brief = Duration::from_secs(20);
    let lease = locks.one.try_lock(&locks.id, brief, Owner::fresh()).await.unwrap().unwrap();
    let stranger = File::open(locks.file()).unwrap();
    stranger.lock().unwrap();
    let asked = Instant::now();
    assert_eq!(lease.renew().await.unwrap_err().kind(), ErrorKind::Timeout);
    assert!(asked.elapsed() < brief / 4, "it took {:?}", asked.elapsed());
    assert!(locks.take(&locks.two).await.is_none(), "a held lock needs no turn at the file");
    assert!(locks.two.inspect(&locks.id).await.unwrap().unwrap().held_for.is_some());
    // Another lock is another file.
    assert!(locks.one.try_lock(&LockId::from("queue/other"), brief, Owner::fresh()).await.unwrap().is_some());
    stranger.unlock().unwrap();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
}

/// Whatever a writer leaves behind that died in the midst of it, there is the record before it.
#[tokio::test]
async fn a_torn_write_leaves_the_holder_its_lock() {
    let locks = Locks::new().await;
    let lease = locks.take(&locks.one).await.unwrap();
    // The second of the two slots has never been written, or the last but one time.
    for _ in 0..2 {
        assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
        let mut bytes = fs::read(locks.file()).unwrap();
        let half = bytes.len() / 2;
        let slots: Vec<_> = [&bytes[..half], &bytes[half..]].map(beat).to_vec();
        let older = if slots[0] < slots[1] { 0 } else { half };
        bytes[older + 60..older + 90].fill(b'?');
        fs::write(locks.file(), bytes).unwrap();
        assert!(locks.take(&locks.two).await.is_none());
    }
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
}

/// The beat of the record in a slot.
fn beat(slot: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(slot);
    text.lines().find_map(|line| line.strip_prefix("beat ")?.parse().ok())
}

/// Whoever only looks leaves nothing behind, and is told that there is nothing.
#[tokio::test]
async fn who_only_looks_makes_no_directory() {
    let parent = tempfile::tempdir().unwrap();
    let missing = parent.path().join("locks");
    let looking = || OpenOptions::default().existing();
    let error = open_with(&missing, "", looking()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    fs::create_dir(&missing).unwrap();
    assert_eq!(open_with(&missing, "", looking()).await.err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(fs::read_dir(&missing).unwrap().count(), 0);
}

/// Nothing but the mark and the locks' files stays in the directory; they are for those for whom the directory is.
#[tokio::test]
async fn files_are_for_whom_the_directory_is() {
    use std::os::unix::fs::PermissionsExt;
    let locks = Locks::new().await;
    locks.take(&locks.one).await.unwrap();
    let mode = |name: &str| {
        let path = locks.directory().join(name);
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode(""), mode("bus.locks"), mode("queue.it.lock")), (0o700, 0o600, 0o600));
    fs::set_permissions(locks.directory(), fs::Permissions::from_mode(0o770)).unwrap();
    locks.one.try_lock(&LockId::from("queue/other"), LEASE, Owner::fresh()).await.unwrap().unwrap();
    assert_eq!(mode("queue.other.lock"), 0o660);
    let mut names: Vec<_> =
        fs::read_dir(locks.directory()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["bus.locks", "queue.it.lock", "queue.other.lock"]);
}
