//! What the tests work with: a container of their own, hosts on it, and a proxy before it where one is wanted.

use std::sync::Arc;
use std::time::Duration;

use bus::backend::azure_storage::BlobLocks;
use bus::contract::{Lease, LockId, LockManager, Owner};
use bus_emulators::sas;
use bus_emulators::{Azurite, FaultProxy, Pattern, Storage, or_skip};

use crate::raw::Raw;

/// The shortest lease that Azure gives.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// The lock of most tests, and its blob.
pub(crate) const BLOB: &str = "queue.it";

/// A container that no other test uses. It is not made before somebody asks for it.
pub(crate) struct Bench {
    pub(crate) azurite: &'static Storage,
    pub(crate) container: String,
    /// What others do, past any proxy.
    pub(crate) raw: Raw,
    pub(crate) id: LockId,
}

/// A bench, or the end of the test where there is no Azurite.
macro_rules! bench {
    () => {
        match crate::bench::Bench::open() {
            Some(bench) => bench,
            None => return,
        }
    };
}
pub(crate) use bench;

impl Bench {
    pub(crate) fn open() -> Option<Bench> {
        let azurite = or_skip(Azurite::shared())?;
        let container = format!("locks-{}", uuid::Uuid::new_v4());
        let sas = sas::of_account(azurite.account(), azurite.key(), "racwdl");
        let raw = Raw::new(format!("{}/{container}", azurite.blob_endpoint()), sas);
        Some(Bench { azurite, container, raw, id: LockId::from("queue/it") })
    }

    /// A host that signs with the account's key.
    pub(crate) fn host(&self) -> Arc<dyn LockManager> {
        self.host_with(&self.azurite.connection_string())
    }

    /// A host whose requests go through a proxy.
    pub(crate) fn host_at(&self, proxy: &FaultProxy) -> Arc<dyn LockManager> {
        self.host_with(&self.connection_string_at(proxy))
    }

    pub(crate) fn host_with(&self, connection_string: &str) -> Arc<dyn LockManager> {
        Arc::new(
            BlobLocks::from_connection_string(connection_string, &self.container).expect("it can be used"),
        )
    }

    pub(crate) fn connection_string_at(&self, proxy: &FaultProxy) -> String {
        self.azurite.connection_string_at(proxy.url(), self.azurite.queue_endpoint())
    }

    pub(crate) fn proxy(&self) -> FaultProxy {
        FaultProxy::start(self.azurite.blob_endpoint()).expect("a proxy")
    }

    /// Takes the lock, which must be free, as a new owner.
    pub(crate) async fn take(&self, host: &Arc<dyn LockManager>) -> Box<dyn Lease> {
        self.try_take(host).await.expect("the lock is free")
    }

    pub(crate) async fn try_take(&self, host: &Arc<dyn LockManager>) -> Option<Box<dyn Lease>> {
        host.try_lock(&self.id, LEASE, Owner::fresh()).await.expect("the store answers")
    }

    /// Takes a lock that has to become free by itself.
    pub(crate) async fn wait_for(&self, host: &Arc<dyn LockManager>, patience: Duration) -> Box<dyn Lease> {
        let waiting = async {
            loop {
                if let Some(lease) = self.try_take(host).await {
                    return lease;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        match tokio::time::timeout(patience, waiting).await {
            Ok(lease) => lease,
            Err(_) => panic!("the lock was not free within {patience:?}"),
        }
    }
}

/// Requests about leases with this action: `acquire`, `renew`, `release`, `change`.
pub(crate) fn lease_requests(action: &str) -> Pattern {
    Pattern::any().method("PUT").parameter("comp", "lease").header("x-ms-lease-action", action)
}

/// Writes of records.
pub(crate) fn record_writes() -> Pattern {
    Pattern::any().method("PUT").parameter("comp", "metadata")
}

/// Reads of records.
pub(crate) fn record_reads() -> Pattern {
    Pattern::any().method("HEAD")
}

/// The making of containers.
pub(crate) fn container_creations() -> Pattern {
    Pattern::any().method("PUT").parameter("restype", "container")
}

/// The making of blobs.
pub(crate) fn blob_creations() -> Pattern {
    Pattern::any().method("PUT").header("x-ms-blob-type", "BlockBlob")
}
