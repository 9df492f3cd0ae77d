//! Answers who asks whether the host lives, is ready, and consumes: over HTTP, and by a port that is open.
//!
//! A plugin as anybody could write it, but for one thing: it answers on a thread of its own. A probe that goes unanswered
//! because handlers keep all of the runtime's threads busy would have a host killed that does its work.

mod http;
mod server;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::plugin::{Plugin, PluginContext};
use crate::contract::BoxFuture;
use crate::error::{Error, ErrorKind, Result};

/// Where to answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Addresses {
    /// Over HTTP.
    pub(super) health: Option<SocketAddr>,
    /// With the time.
    pub(super) alive: Option<SocketAddr>,
}

/// Where it is answered, once that is known: port 0 lets the system choose.
#[derive(Clone, Debug, Default)]
pub(super) struct Bound(Arc<Mutex<Addresses>>);

impl Bound {
    pub(super) fn addresses(&self) -> Addresses {
        *self.0.lock()
    }
}

/// The listeners of a host.
pub(super) struct Liveness {
    addresses: Addresses,
    bound: Bound,
    /// Fires at the very beginning of the host's end.
    stopping: CancellationToken,
    /// What is answered from, once the host has been started.
    host: Arc<OnceLock<PluginContext>>,
    /// Dropped with the plugin, when the host has come to its end: it ends the thread.
    serving: Mutex<Option<DropGuard>>,
}

impl Liveness {
    pub(super) fn at(addresses: Addresses, bound: Bound, stopping: CancellationToken) -> Self {
        Liveness { addresses, bound, stopping, host: Arc::default(), serving: Mutex::default() }
    }
}

impl Plugin for Liveness {
    fn name(&self) -> &str {
        "liveness"
    }

    fn prepare(&self) -> Result<()> {
        let health = self.addresses.health.map(|address| listen("health", address)).transpose()?;
        let alive = self.addresses.alive.map(|address| listen("alive", address)).transpose()?;
        let at = |listener: &Option<TcpListener>| listener.as_ref().and_then(|one| one.local_addr().ok());
        *self.bound.0.lock() = Addresses { health: at(&health), alive: at(&alive) };
        let end = CancellationToken::new();
        let server = server::Server {
            health,
            alive,
            stopping: self.stopping.clone(),
            end: end.clone(),
            host: Arc::clone(&self.host),
        };
        server.start()?;
        *self.serving.lock() = Some(end.drop_guard());
        Ok(())
    }

    fn start(&self, host: PluginContext) -> BoxFuture<'_, Result<()>> {
        // It is started once.
        let _ = self.host.set(host);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Takes the port, or says who wanted it.
fn listen(key: &'static str, address: SocketAddr) -> Result<TcpListener> {
    let listening = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok((listener.local_addr()?, listener))
    });
    let (bound, listener) = listening.map_err(|error| {
        Error::new(ErrorKind::Config, format!("cannot listen at {address}, which is `{key}`: {error}"))
            .caused_by(error)
    })?;
    tracing::info!(target: "bus::host", event = "liveness.listening", listener = key, address = %bound, "answering probes");
    Ok(listener)
}
