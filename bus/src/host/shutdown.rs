//! How a host ends, step by step, in bounded time.
//!
//! 1. Nothing more is claimed; what was claimed ahead is given back at once.
//! 2. What runs is awaited: no longer than the grace period, not a moment longer than needed. Each singleton's lock is
//!    released when its run has ended and its verdict is with the store.
//! 3. After the grace period, or a second signal, what still runs is named and asked to end (its token fires), and a
//!    second later dropped: the last act.
//!    A singleton's run that was dropped is released as cut; one that cannot even be dropped, because it blocks its
//!    thread, keeps its lock until the lease ends by itself.
//! 4. Sending is closed, the transports are, and last of all the keeper with the locks.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::signals::{self, Listener};
use super::start::{self, Running};
use super::wiring::Plan;
use crate::error::{Error, ErrorKind, Result};
use crate::pump::PumpEnd;

/// How long a run has to end by itself after its token fired: to put away what it has in hand.
const NOTICE: Duration = Duration::from_secs(1);

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
        keeper.close_after(RELEASE, start::close_locks(running.locks.take())).await;
    }
    outcome
}

async fn join_all(runners: &mut JoinSet<PumpEnd>) {
    while let Some(ended) = runners.join_next().await {
        match ended {
            // What failed was reported where it did.
            Ok(PumpEnd::Clean | PumpEnd::Failed) => {}
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
    tracing::warn!(target: "bus::host", running = ?still, grace = ?running.grace, "the grace period is over: what still runs is asked to end, and then cut off");
    running.common.signals.cancel.cancel();
    if tokio::time::timeout(NOTICE, join_all(&mut running.runners)).await.is_ok() {
        return Ok(());
    }
    running.common.signals.cut.cancel();
    if tokio::time::timeout(LAST_ACT, join_all(&mut running.runners)).await.is_ok() {
        return Ok(());
    }
    let stuck = running.common.board.running();
    if stuck.is_empty() {
        return Err(Error::new(
            ErrorKind::Timeout,
            "all runs have ended, but the store did not take in time what became of them. Their messages come back when their claims run out",
        ));
    }
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
    let signals = Listener::start(plan.grace).await?;
    let handle = tokio::select! {
        started = start::start(plan) => started?,
        () = signals.asked.cancelled() => return Ok(()),
    };
    // Set once, here.
    let _ = signals.board.set(handle.board().clone());
    tokio::select! {
        outcome = handle.wait() => return outcome,
        () = signals.asked.cancelled() => {}
    }
    tracing::info!(target: "bus::host", "asked to stop: draining");
    handle.begin_stop();
    let outcome = tokio::select! {
        outcome = handle.wait() => outcome,
        () = signals.hurried.cancelled() => {
            tracing::warn!(target: "bus::host", "asked to stop again: the grace period is over");
            handle.hurry();
            handle.wait().await
        }
    };
    if handle.has_cut() {
        signals.stay();
    }
    match outcome {
        // Returning would wait for a thread that never ends.
        Err(error) if error.kind() == ErrorKind::Handler => signals::last_words(&format!("{error:?}")),
        outcome => outcome,
    }
}
