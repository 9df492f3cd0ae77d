//! A running host, as its owner sees it: send, look, stop, wait.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::board::Board;
use super::health::{Health, Monitor};
use super::liveness::Bound;
use super::loss;
use super::opening::Openings;
use super::shutdown;
use super::start::Running;
use super::stores::Stores;
use crate::contract::Inspect;
use crate::error::{Error, ErrorKind, Result};
use crate::sender::Bus;

/// A running host. Dropping the handle leaves it running.
#[derive(Clone)]
pub struct HostHandle {
    bus: Bus,
    stores: Arc<Stores>,
    stop: CancellationToken,
    hurry: CancellationToken,
    ended: watch::Receiver<Option<Result<()>>>,
    monitor: Arc<Monitor>,
    bound: Bound,
    cut: CancellationToken,
    #[cfg(feature = "testing")]
    power: PowerSwitch,
}

/// Ends a host as the end of its process would: its tasks are dropped wherever they are, nothing is given back.
#[cfg(feature = "testing")]
#[derive(Clone)]
pub(crate) struct PowerSwitch {
    main: tokio::task::AbortHandle,
    keeper: Option<CancellationToken>,
}

#[cfg(feature = "testing")]
impl PowerSwitch {
    /// Ends it. [`HostHandle::wait`] returns when it has ended.
    pub(crate) fn off(&self) {
        // First, so that no lock is released because its run is gone.
        if let Some(keeper) = &self.keeper {
            keeper.cancel();
        }
        self.main.abort();
    }
}

impl HostHandle {
    pub(super) fn over(mut running: Running, mut openings: Openings) -> Self {
        let (stop, hurry) = (CancellationToken::new(), CancellationToken::new());
        let (tell, ended) = watch::channel(None);
        let (bus, stores) = (running.bus.clone(), Arc::clone(&running.common.stores));
        let (monitor, cut) = (Arc::clone(&running.common.monitor), running.common.signals.cut.clone());
        let bound = running.bound.clone();
        let (stopped, hurried) = (stop.clone(), hurry.clone());
        #[cfg(feature = "testing")]
        let keeper = running.keeper.as_ref().map(|keeper| keeper.abandoning());
        let _main = tokio::spawn(async move {
            let (common, keeper) = (Arc::clone(&running.common), running.keeper.clone());
            let lost = tokio::select! {
                () = stopped.cancelled() => Ok(()),
                error = loss::of_a_store(&common, keeper.as_deref()) => Err((error, "store.lost")),
                error = openings.failure() => Err((error, "store.lost")),
                error = loss::of_a_part(&mut running.runners) => Err((error, "part.lost")),
            };
            let lost = lost.map_err(|(error, event)| {
                tracing::error!(target: "bus::host", event, error = ?error, "the host cannot go on, and comes to its end");
                stopped.cancel();
                error
            });
            // What is not open now is not needed any more.
            drop(openings);
            let outcome = shutdown::shut_down(running, hurried).await.and(lost);
            // Nobody may be waiting.
            let _ = tell.send(Some(outcome));
        });
        HostHandle {
            bus,
            stores,
            stop,
            hurry,
            ended,
            monitor,
            bound,
            cut,
            #[cfg(feature = "testing")]
            power: PowerSwitch { main: _main.abort_handle(), keeper },
        }
    }

    /// What ends the host without a word.
    #[cfg(feature = "testing")]
    pub(crate) fn power(&self) -> PowerSwitch {
        self.power.clone()
    }

    /// Whether runs have been dropped.
    pub(super) fn has_cut(&self) -> bool {
        self.cut.is_cancelled()
    }

    /// Shows what runs.
    pub(super) fn board(&self) -> &Board {
        &self.monitor.board
    }

    /// Sends through the host's transports.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Looks into the store of a transport: depths, dead letters.
    ///
    /// # Errors
    /// [`ErrorKind::UnknownTransport`], [`ErrorKind::Unsupported`] if that store cannot be looked into, or
    /// [`ErrorKind::Unavailable`] while it is [waited for](HostHandle::waiting_for).
    pub fn inspect(&self, transport: &str) -> Result<Arc<dyn Inspect>> {
        self.stores.inspect(transport)
    }

    /// The stores that were not there when the host started, and have not been reached since: the names of transports,
    /// and `locks`. What they carry is neither sent nor processed until they come; everything else goes on. Empty when all
    /// have been reached once, and from then on, also if one goes away later.
    pub fn waiting_for(&self) -> Vec<String> {
        self.stores.missing()
    }

    /// What the host and its processors are at, and whether they really consume. Asks no store, and waits for nothing.
    pub fn health(&self) -> Health {
        self.monitor.health()
    }

    /// The host's numbers, in the text format of Prometheus, version 0.0.4: what `/metrics` answers beside the probes. For a
    /// program that has an HTTP server of its own. Asks no store, and waits for nothing.
    #[cfg(feature = "prometheus")]
    pub fn metrics(&self) -> String {
        self.monitor.metrics()
    }

    /// Where probes are answered over HTTP, with the port that the system chose if it was to.
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.bound.addresses().health
    }

    /// Where whoever connects is told the time.
    pub fn alive_address(&self) -> Option<SocketAddr> {
        self.bound.addresses().alive
    }

    /// Begins to stop, and waits until the host has stopped. Calling it again waits for the same.
    ///
    /// # Errors
    /// [`ErrorKind::Handler`] if a handler could be neither awaited nor dropped; it may still be running.
    /// [`ErrorKind::Timeout`] if the store did not take the last verdicts, so that their messages will come again.
    ///
    /// It is no error if a lock's store does not answer: the lock is tried to be given back for what is left of the grace
    /// period, and then left to its lease, which is logged.
    pub async fn stop(&self) -> Result<()> {
        self.begin_stop();
        self.wait().await
    }

    /// Begins to stop, and returns at once.
    pub fn begin_stop(&self) {
        self.stop.cancel();
    }

    /// Ends the grace period of a stop: what still runs is cut off.
    pub fn hurry(&self) {
        self.hurry.cancel();
    }

    /// Waits until the host has stopped, whoever stopped it.
    ///
    /// # Errors
    /// As [`stop`](HostHandle::stop); and why, if the host stopped because it has lost a store for good
    /// ([`Transport::lost`](crate::contract::Transport::lost)), because one that it [waited
    /// for](HostHandle::waiting_for) cannot be had, or not within `store_wait_limit`, or because a part of it has panicked
    /// ([`ErrorKind::Internal`]).
    pub async fn wait(&self) -> Result<()> {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Ok(())),
            Err(_) => {
                Err(Error::new(ErrorKind::Internal, "the host's own task ended before it could say how"))
            }
        }
    }
}

impl fmt::Debug for HostHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostHandle").field("stopping", &self.stop.is_cancelled()).finish_non_exhaustive()
    }
}
