//! How a host ends, step by step, in bounded time.
//!
//! 1. Nothing more is claimed; what was claimed ahead is given back at once.
//! 2. What runs is awaited: no longer than the grace period, not a moment longer than needed. Each singleton's lock is
//!    released when its run has ended and its verdict is with the store.
//! 3. After the grace period, or a second signal, what still runs is named, asked to end, and dropped: the last act.
//!    A singleton's run that was dropped is released as cut; one that cannot even be dropped, because it blocks its
//!    thread, keeps its lock until the lease ends by itself.
//! 4. Sending is closed, the transports are, and last of all the keeper with the locks.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::start::{self, Running};
use super::wiring::Plan;
use crate::error::{Error, ErrorKind, Result};
use crate::pump::PumpEnd;

/// How long a run has to end after it was dropped. All later steps together take less than the 10 s that are promised
/// beyond the grace period.
const LAST_ACT: Duration = Duration::from_secs(3);

/// How long the locks have to be released after all runs have ended.
const RELEASE: Duration = Duration::from_secs(3);

/// Steps 1 to 4.
pub(super) async fn shut_down(mut running: Running, hurry: CancellationToken) -> Result<()> {
    running.common.signals.stop.cancel();
    let drained = tokio::select! {
        biased;
        () = join_all(&mut running.runners) => true,
        () = tokio::time::sleep(running.grace) => false,
        () = hurry.cancelled() => false,
    };
    let outcome = if drained { Ok(()) } else { last_act(&mut running).await };
    running.bus.close();
    start::close_transports(&running.common.transports).await;
    if let Some(keeper) = running.keeper.take() {
        // All locks are released by now but those of runs that would not end: these are left to their leases.
        keeper.close(RELEASE).await;
    }
    outcome
}

async fn join_all(runners: &mut JoinSet<PumpEnd>) {
    while let Some(ended) = runners.join_next().await {
        match ended {
            Ok(PumpEnd::Clean) => {}
            Ok(PumpEnd::Cut(messages)) => {
                tracing::warn!(target: "bus::host", ?messages, "cut off at the end; they will be delivered again");
            }
            Err(error) => {
                tracing::error!(target: "bus::host", %error, "a processor's task ended unexpectedly")
            }
        }
    }
}

/// What has outlived the grace period is dropped.
async fn last_act(running: &mut Running) -> Result<()> {
    let still = running.common.board.running();
    tracing::warn!(target: "bus::host", running = ?still, grace = ?running.grace, "the grace period is over: cutting off what still runs");
    running.common.signals.cancel.cancel();
    running.common.signals.cut.cancel();
    if tokio::time::timeout(LAST_ACT, join_all(&mut running.runners)).await.is_ok() {
        return Ok(());
    }
    let stuck = running.common.board.running();
    Err(Error::new(
        ErrorKind::Handler,
        format!(
            "these runs could be neither awaited nor dropped, since they block their thread: {}. Their messages come back when their claims run out; a singleton's lock is left to its lease",
            stuck.join("; ")
        ),
    ))
}

/// Starts, waits for a signal, stops.
pub(super) async fn run_until_signalled(plan: Plan) -> Result<()> {
    let mut signals = Signals::listen()?;
    let handle = tokio::select! {
        started = start::start(plan) => started?,
        () = signals.next() => return Ok(()),
    };
    tokio::select! {
        outcome = handle.wait() => return outcome,
        () = signals.next() => {}
    }
    tracing::info!(target: "bus::host", "asked to stop: draining");
    handle.begin_stop();
    let outcome = tokio::select! {
        outcome = handle.wait() => outcome,
        () = signals.next() => {
            tracing::warn!(target: "bus::host", "asked to stop again: the grace period is over");
            handle.hurry();
            handle.wait().await
        }
    };
    match outcome {
        Err(error) if error.kind() == ErrorKind::Handler => end_process(&error),
        outcome => outcome,
    }
}

/// Returning would wait for a thread that never ends.
#[allow(
    clippy::print_stderr,
    reason = "the last words of a process whose subscriber may not get to write any"
)]
fn end_process(error: &Error) -> Result<()> {
    tracing::error!(target: "bus::host", error = ?error, "ending the process");
    eprintln!("bus: {error:?}");
    std::process::exit(1)
}

/// SIGTERM and Ctrl-C.
struct Signals {
    #[cfg(unix)]
    term: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn listen() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |error| Error::new(ErrorKind::Internal, "cannot listen for signals").caused_by(error);
        Ok(Signals {
            term: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    fn listen() -> Result<Self> {
        Ok(Signals {})
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
