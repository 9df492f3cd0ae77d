//! What is special about the locks in a directory, and what they do in rough weather; what every lock manager promises is
//! in the conformance suite.

#![cfg(target_os = "linux")]

#[path = "file/disks.rs"]
mod heavy_disks;
#[path = "file/hosts.rs"]
mod heavy_hosts;
#[path = "file/locks.rs"]
mod locks;
#[path = "file/place.rs"]
mod place;
#[path = "file/tampering.rs"]
mod tampering;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bus::contract::{Lease, LockId, LockManager, OpenOptions, Owner, Scheme, StoreUrl};

/// Longer than anything here takes; only a defect waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A lease that does not end while a test runs.
pub(crate) const LEASE: Duration = Duration::from_secs(300);

/// Opens the locks in a directory, which is made if it is missing.
pub(crate) async fn open(directory: &Path, parameters: &str) -> bus::Result<Arc<dyn LockManager>> {
    open_with(directory, parameters, OpenOptions::default()).await
}

pub(crate) async fn open_with(
    directory: &Path,
    parameters: &str,
    options: OpenOptions,
) -> bus::Result<Arc<dyn LockManager>> {
    let url = StoreUrl::parse(&format!("file://{}{parameters}", directory.display()))?;
    let scheme = Scheme::find("file")?;
    let locks = scheme.locks.expect("locks are all that it has")(&url, &options).await?;
    locks.initialize().await?;
    Ok(locks)
}

/// A directory that two hosts have open.
pub(crate) struct Locks {
    parent: tempfile::TempDir,
    pub(crate) one: Arc<dyn LockManager>,
    pub(crate) two: Arc<dyn LockManager>,
    pub(crate) id: LockId,
}

impl Locks {
    pub(crate) async fn new() -> Self {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("locks");
        let (one, two) = (open(&directory, "").await.unwrap(), open(&directory, "").await.unwrap());
        Locks { parent, one, two, id: LockId::from("queue/it") }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.parent.path().join("locks")
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory().join("queue.it.lock")
    }

    pub(crate) async fn take(&self, manager: &Arc<dyn LockManager>) -> Option<Box<dyn Lease>> {
        self.try_take(manager).await.unwrap()
    }

    pub(crate) async fn try_take(
        &self,
        manager: &Arc<dyn LockManager>,
    ) -> bus::Result<Option<Box<dyn Lease>>> {
        manager.try_lock(&self.id, LEASE, Owner::fresh()).await
    }
}
