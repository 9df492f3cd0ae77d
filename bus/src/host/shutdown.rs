//! How a host ends, step by step, in bounded time.
//!
//! 1. Nothing more is claimed; what was claimed ahead is given back at once.
//! 2. What runs is awaited: no longer than the grace period, not a moment longer than needed. Each singleton's lock is
//!    released when its run has ended and its verdict is with the store.
//! 3. After the grace period, or a second signal, what still runs is named and asked to end (its token fires), and a
//!    second later dropped: the last act.
//!    A singleton's run that was dropped is released as cut; one that cannot even be dropped, because it blocks its
//!    thread, keeps its lock until the lease ends by itself.
//! 4. Plugins, which were told with step 1, are awaited: for what is left of the grace period, at least for 5 s.
//! 5. Sending is closed, the transports are, and last of all the keeper with the locks. A lock whose store does not answer
//!    is tried to be given back for what is left of the grace period, and then left to its lease.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::handle::HostHandle;
use super::plugin::AT_LEAST;
use super::signals::{self, LONGEST_GRACE, Listener};
use super::start::{self, Running};
use super::wiring::Plan;
use crate::error::{Error, ErrorKind, Result};
use crate::pump::PumpEnd;

/// How long a run has to end by itself after its token fired: to put away what it has in hand.
const NOTICE: Duration = Duration::from_secs(1);

/// How long a run has to end after it was dropped. All later steps together take less than the 10 s that are promised
/// beyond the grace period.
const LAST_ACT: Duration = Duration::from_secs(3);

/// How long beyond the grace period the locks have to be released.
const RELEASE: Duration = Duration::from_secs(2);

/// Steps 1 to 5.
pub(super) async fn shut_down(mut running: Running, hurry: CancellationToken) -> Result<()> {
    let grace_over = Instant::now() + running.grace.min(LONGEST_GRACE);
    running.common.monitor.stopping.cancel();
    running.common.signals.stop.cancel();
    running.plugins.tell_to_stop();
    let drained = tokio::select! {
        biased;
        () = join_all(&mut running.runners) => true,
        () = tokio::time::sleep_until(grace_over) => false,
        () = hurry.cancelled() => false,
    };
    let at_least = Instant::now() + AT_LEAST;
    let plugins_until = if drained { grace_over.max(at_least) } else { at_least };
    let outcome = if drained { Ok(()) } else { last_act(&mut running).await };
    if !running.plugins.stopped(plugins_until, &hurry).await {
        // Nothing runs that this could cut: it says that something has been left behind.
        running.common.signals.cut.cancel();
    }
    running.bus.close();
    running.common.stores.close_transports().await;
    if let Some(keeper) = running.keeper.take() {
        let stores = std::sync::Arc::clone(&running.common.stores);
        let patience = async {
            tokio::select! {
                () = tokio::time::sleep_until(grace_over) => {}
                () = hurry.cancelled() => {}
            }
            tokio::time::sleep(RELEASE).await;
        };
        // What is not released by then is left to its lease: the lock of a run that would not end, and all of them where
        // their store does not answer.
        keeper.close_after(patience, async move { stores.close_locks().await }).await;
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

/// Stops a host that was asked to.
async fn drain(handle: &HostHandle, signals: &Listener) -> Result<()> {
    tracing::info!(target: "bus::host", "asked to stop: draining");
    handle.begin_stop();
    tokio::select! {
        outcome = handle.wait() => outcome,
        () = signals.hurried.cancelled() => {
            tracing::warn!(target: "bus::host", "asked to stop again: the grace period is over");
            handle.hurry();
            handle.wait().await
        }
    }
}

/// Starts, waits for a signal or until the host has come to its end by itself, stops.
pub(super) async fn run_until_signalled(plan: Plan) -> Result<()> {
    let signals = Listener::start(plan.grace).await?;
    let failing = start::Failing { hurry: signals.hurried.clone(), ..start::Failing::default() };
    let handle = match start::start(plan, signals.asked.clone(), failing.clone()).await {
        Ok(Some(handle)) => handle,
        Ok(None) => {
            signals.stay();
            return Ok(());
        }
        Err(error) => {
            if signals.asked.is_cancelled() || failing.left_behind.is_cancelled() {
                signals.stay();
            }
            return Err(error);
        }
    };
    // Set once, here.
    let _ = signals.board.set(handle.board().clone());
    let outcome = tokio::select! {
        outcome = handle.wait() => outcome,
        () = signals.asked.cancelled() => drain(&handle, &signals).await,
    };
    // What a run has left behind that was dropped, by its time-out, its lost term or the end of the host, may be at work on
    // a thread that the runtime waits for; and nobody but our listener hears a signal any more.
    if signals.asked.is_cancelled() || handle.has_cut() || !handle.waiting_for().is_empty() {
        signals.stay();
    }
    match outcome {
        // Returning would wait for a thread that never ends.
        Err(error) if error.kind() == ErrorKind::Handler => signals::last_words(&format!("{error:?}")),
        outcome => outcome,
    }
}
