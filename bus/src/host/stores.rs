//! The stores of a host: which it has, and which of them have been reached yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::SetOnce;

use crate::contract::{Guarantees, Inspect, LockManager, Transport};
use crate::error::{Error, ErrorKind, Result};

/// What the locks are called among the stores, beside the transports' own names.
pub(super) const LOCKS: &str = "locks";

/// The stores that a host was given, each there once it has been opened and found to be in order.
pub(super) struct Stores {
    transports: BTreeMap<String, SetOnce<Arc<dyn Transport>>>,
    /// `None` where nothing needs them.
    locks: Option<SetOnce<Arc<dyn LockManager>>>,
}

impl Stores {
    /// Stores of which none has been reached yet.
    pub(super) fn awaited<'n>(transports: impl IntoIterator<Item = &'n String>, locks: bool) -> Self {
        let transports = transports.into_iter().map(|name| (name.clone(), SetOnce::new()));
        Stores { transports: transports.collect(), locks: locks.then(SetOnce::new) }
    }

    /// Transports alone, all of them open.
    pub(super) fn open(transports: BTreeMap<String, Arc<dyn Transport>>) -> Self {
        let open = |(name, transport)| (name, SetOnce::new_with(Some(transport)));
        Stores { transports: transports.into_iter().map(open).collect(), locks: None }
    }

    /// A transport has been reached.
    pub(super) fn reached(&self, name: &str, transport: Arc<dyn Transport>) {
        if let Some(slot) = self.transports.get(name) {
            // Each is opened once.
            let _ = slot.set(transport);
        }
    }

    /// The lock manager has been reached.
    pub(super) fn locks_reached(&self, locks: Arc<dyn LockManager>) {
        if let Some(slot) = &self.locks {
            // It is opened once.
            let _ = slot.set(locks);
        }
    }

    /// The transport of that name.
    ///
    /// # Errors
    /// [`ErrorKind::UnknownTransport`], or [`ErrorKind::Unavailable`] while it is waited for.
    pub(super) fn transport(&self, name: &str) -> Result<&Arc<dyn Transport>> {
        self.slot(name)?.get().ok_or_else(|| {
            Error::new(
                ErrorKind::Unavailable,
                "the store has not been reached since the host was started, and is waited for",
            )
            .with("transport", name)
        })
    }

    /// The same, as soon as it is there.
    pub(super) async fn transport_when_there(&self, name: &str) -> Result<&Arc<dyn Transport>> {
        Ok(self.slot(name)?.wait().await)
    }

    fn slot(&self, name: &str) -> Result<&SetOnce<Arc<dyn Transport>>> {
        self.transports
            .get(name)
            .ok_or_else(|| Error::new(ErrorKind::UnknownTransport, format!("there is no transport {name:?}")))
    }

    /// The lock manager, if it has been reached.
    pub(super) fn locks(&self) -> Option<&Arc<dyn LockManager>> {
        self.locks.as_ref().and_then(SetOnce::get)
    }

    /// The same, as soon as it is there: never, where none is needed.
    pub(super) async fn locks_when_there(&self) -> &Arc<dyn LockManager> {
        match &self.locks {
            Some(slot) => slot.wait().await,
            None => std::future::pending().await,
        }
    }

    /// The names of all transports.
    pub(super) fn transport_names(&self) -> impl Iterator<Item = &str> {
        self.transports.keys().map(String::as_str)
    }

    /// The transports that have been reached, by name.
    pub(super) fn transports(&self) -> impl Iterator<Item = (&str, &Arc<dyn Transport>)> {
        self.transports.iter().filter_map(|(name, slot)| Some((name.as_str(), slot.get()?)))
    }

    /// What those promise.
    pub(super) fn guarantees(&self) -> Vec<(String, Guarantees)> {
        self.transports().map(|(name, transport)| (name.to_owned(), transport.guarantees())).collect()
    }

    /// The names of those that have not been reached: transports, and [`LOCKS`].
    pub(super) fn missing(&self) -> Vec<String> {
        let transports = self.transports.iter().filter(|(_, slot)| !slot.initialized());
        let transports = transports.map(|(name, _)| name.clone());
        let locks = self.locks.iter().filter(|slot| !slot.initialized());
        transports.chain(locks.map(|_| LOCKS.to_owned())).collect()
    }

    /// Looks into the store of the transport of that name.
    pub(super) fn inspect(&self, name: &str) -> Result<Arc<dyn Inspect>> {
        self.transport(name)?.capabilities().inspect.ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                format!("the store of the transport {name:?} cannot be looked into"),
            )
        })
    }

    /// Closes the transports that are open, each within a second: a dead broker holds nobody up.
    pub(super) async fn close_transports(&self) {
        let close = |(name, transport): (&str, &Arc<dyn Transport>)| {
            let (name, transport) = (name.to_owned(), Arc::clone(transport));
            async move {
                if tokio::time::timeout(Duration::from_secs(1), transport.close()).await.is_err() {
                    tracing::warn!(target: "bus::host", transport = name, "the transport did not close within a second");
                }
            }
        };
        futures_util::future::join_all(self.transports().map(close)).await;
    }

    /// Closes the lock manager, if there is one. To be done in the keeper's runtime.
    pub(super) async fn close_locks(&self) {
        if let Some(locks) = self.locks() {
            locks.close().await;
        }
    }
}
