//! What a plugin has of its host.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::super::candidate::whereabouts;
use super::super::health::{Health, Monitor};
use super::super::stores::Stores;
use crate::contract::LockId;
use crate::error::{Error, ErrorKind, Result};
use crate::scope::HostScope;
use crate::sender::Bus;
use crate::singleton::{HandOver, Keeper, Lock, LockTiming, OnOverrun, Stop, Term, candidate};

/// A plugin's host. Cheap to clone.
#[derive(Clone)]
pub struct PluginContext {
    pub(in super::super) bus: Bus,
    pub(in super::super) scope: Arc<HostScope>,
    pub(in super::super) stores: Arc<Stores>,
    pub(in super::super) monitor: Arc<Monitor>,
    /// There if something needs locks.
    pub(in super::super) keeper: Option<Arc<Keeper>>,
    pub(in super::super) lock_timing: LockTiming,
    pub(in super::super) on_overrun: OnOverrun,
    pub(in super::super) namespace: Option<String>,
}

impl PluginContext {
    /// Sends through the host's transports. Closed only after the plugins have ended, or been given up.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// The host's value of type `T`: one that was given ([`HostBuilder::provide`](crate::host::HostBuilder::provide)) or
    /// made by a `#[provide]` function of that type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.scope.get()
    }

    /// Fires at the very beginning of the host's end. Cancelling it yourself stops nobody else.
    pub fn stopping(&self) -> CancellationToken {
        self.monitor.stopping.child_token()
    }

    /// What the host and its processors are at. Asks no store, and waits for nothing.
    pub fn health(&self) -> Health {
        self.monitor.health()
    }

    /// The host's numbers, as [`HostHandle::metrics`](crate::host::HostHandle::metrics).
    #[cfg(feature = "prometheus")]
    pub fn metrics(&self) -> String {
        self.monitor.metrics()
    }

    /// The configured `namespace`: the first part of every lock's id.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Competes for a lock of the host's lock manager until the host stops, and calls `run` once for each term: on one host
    /// of the fleet at a time. A run is asked to end by [`Term::draining`] when the host stops, and by
    /// [`Term::lost`] when the lock is lost; the lock is released when it has ended. Returns when the lock has been given
    /// back.
    ///
    /// The lock lasts as the configuration says for all (`lock_lease`). `stop` has to wait until this has returned: what
    /// the host no longer waits for keeps its lock until that runs out.
    ///
    /// # Errors
    /// [`ErrorKind::Wiring`] if the plugin did not say that it [needs locks](super::Plugin::needs_locks), and nothing else
    /// does; [`ErrorKind::Config`] if the lock manager does not take such a lease.
    pub async fn compete<F, R>(&self, id: LockId, run: F) -> Result<()>
    where
        F: FnMut(Term) -> R,
        R: Future<Output = HandOver>,
    {
        let Some(keeper) = &self.keeper else {
            return Err(Error::new(
                ErrorKind::Wiring,
                "the plugin competes for a lock and has not said so: its `needs_locks` has to answer true",
            )
            .with("lock", &id));
        };
        let stopping = self.stopping();
        let Some(locks) = stopping.run_until_cancelled(self.stores.locks_when_there()).await else {
            return Ok(());
        };
        let lock = Lock::new(Arc::clone(locks), id, self.lock_timing)?
            .on_overrun(self.on_overrun)
            .noted(whereabouts());
        candidate(keeper, lock, Stop { drain: stopping, ..Stop::default() }, run).await;
        Ok(())
    }
}

impl fmt::Debug for PluginContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginContext")
            .field("stopping", &self.monitor.stopping.is_cancelled())
            .finish_non_exhaustive()
    }
}
