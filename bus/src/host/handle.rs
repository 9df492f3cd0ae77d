//! A running host, as its owner sees it: send, look, stop, wait.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::shutdown;
use super::start::{self, Board, Running, Transports};
use crate::contract::Inspect;
use crate::error::{Error, ErrorKind, Result};
use crate::sender::Bus;

/// A running host. Dropping the handle leaves it running.
#[derive(Clone)]
pub struct HostHandle {
    bus: Bus,
    transports: Transports,
    stop: CancellationToken,
    hurry: CancellationToken,
    ended: watch::Receiver<Option<Result<()>>>,
    board: Board,
    cut: CancellationToken,
}

impl HostHandle {
    pub(super) fn over(running: Running) -> Self {
        let (stop, hurry) = (CancellationToken::new(), CancellationToken::new());
        let (tell, ended) = watch::channel(None);
        let (bus, transports) = (running.bus.clone(), running.common.transports.clone());
        let (board, cut) = (running.common.board.clone(), running.common.signals.cut.clone());
        let (stopped, hurried) = (stop.clone(), hurry.clone());
        tokio::spawn(async move {
            stopped.cancelled().await;
            let outcome = shutdown::shut_down(running, hurried).await;
            // Nobody may be waiting.
            let _ = tell.send(Some(outcome));
        });
        HostHandle { bus, transports, stop, hurry, ended, board, cut }
    }

    /// Whether runs have been dropped.
    pub(super) fn has_cut(&self) -> bool {
        self.cut.is_cancelled()
    }

    /// Shows what runs.
    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    /// Sends through the host's transports.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Looks into the store of a transport: depths, dead letters.
    ///
    /// # Errors
    /// [`ErrorKind::UnknownTransport`], or [`ErrorKind::Unsupported`] if that store cannot be looked into.
    pub fn inspect(&self, transport: &str) -> Result<Arc<dyn Inspect>> {
        start::inspect(&self.transports, transport)
    }

    /// Begins to stop, and waits until the host has stopped. Calling it again waits for the same.
    ///
    /// # Errors
    /// [`ErrorKind::Handler`] if a handler could be neither awaited nor dropped; it may still be running.
    /// [`ErrorKind::Timeout`] if the store did not take the last verdicts, so that their messages will come again.
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
    /// As [`stop`](HostHandle::stop).
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
