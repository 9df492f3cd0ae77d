//! Runs messages, one at a time.

use std::sync::Arc;
use std::time::Duration;

use async_channel::Receiver;

use super::{Job, Key, Shared};
use crate::message::{Delivery, Verdict};
use crate::pipeline::layers::dead_letter::{Crashes, crashed_too_often, crashes};
use crate::sender::Run;

/// How long what was released by user code, and not by the end of anything, waits before it may be claimed again.
const LEISURE: Duration = Duration::from_secs(1);

/// Runs what comes until the channel is closed and empty.
pub(super) async fn run(shared: Arc<Shared>, queue: Receiver<Job>) {
    while let Ok(Job { key, delivery }) = queue.recv().await {
        let id = delivery.envelope.id;
        let verdict = verdict_on(&shared, key, delivery).await;
        shared.judged(key, id, verdict);
    }
}

async fn verdict_on(shared: &Arc<Shared>, key: Key, delivery: Delivery) -> Verdict {
    let stop = &shared.signals.stop;
    let verdict = match crashes(&delivery, shared.spec.settings.dead_letter_delivery_limit) {
        Crashes::Few => {
            // Not started while it waits here: stopping overtakes it.
            let among_others = stop.run_until_cancelled(shared.alone.read()).await;
            match among_others {
                Some(_among_others) if may_start(shared, key, &delivery).await => {
                    attempt(shared, key, delivery).await
                }
                _ => return Verdict::Release,
            }
        }
        Crashes::RunAlone => {
            let alone = stop.run_until_cancelled(shared.alone.write()).await;
            match alone {
                Some(_alone) if may_start(shared, key, &delivery).await => {
                    attempt_alone(shared, key, delivery).await
                }
                _ => return Verdict::Release,
            }
        }
        Crashes::GiveUp => crashed_too_often(&delivery),
    };
    if matches!(verdict, Verdict::Release) && !shared.signals.cut.is_cancelled() {
        // By a middleware's word, say. It would be back in no time, and go round as fast as the store can.
        let _ = tokio::time::timeout(LEISURE, stop.cancelled()).await;
    }
    verdict
}

/// Whether the message may be started: nothing stops, its claim is certainly ours, and a singleton's intake is open.
async fn may_start(shared: &Shared, key: Key, delivery: &Delivery) -> bool {
    let stop = &shared.signals.stop;
    if let Some(term) = &shared.spec.term
        && !term.intake_open()
    {
        tokio::select! {
            () = term.intake_opened() => {}
            () = stop.cancelled() => {}
        }
    }
    if stop.is_cancelled() {
        return false;
    }
    let alive = shared.claims.is_alive(key, shared.spec.clock.now());
    if !alive {
        tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, message_id = %delivery.envelope.id, "the claim ran out before the message was started: left to whoever claims it next");
    }
    alive
}

/// A run that is suspected of ending the process: the store knows of it before it starts.
async fn attempt_alone(shared: &Arc<Shared>, key: Key, delivery: Delivery) -> Verdict {
    let id = delivery.envelope.id;
    tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, message_id = %id, crashes = delivery.crashes, "too many crashes: run alone, once");
    let Some(receipt) = shared.claims.receipt(key) else { return Verdict::Release };
    match shared.spec.consumer.record_alone(&receipt).await {
        Ok(()) => attempt(shared, key, delivery).await,
        Err(error) => {
            tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, message_id = %id, error = ?error, "its run alone could not be recorded, so it was not made");
            Verdict::Release
        }
    }
}

async fn attempt(shared: &Arc<Shared>, key: Key, delivery: Delivery) -> Verdict {
    let id = delivery.envelope.id;
    let fence = shared.fence();
    let mut run = Run::of(&delivery.envelope.headers);
    if let Some(term) = &shared.spec.term {
        run = run.in_term(term.clone(), shared.spec.transport, shared.guard(term));
    }
    let _running = shared.running.enter(key, id);
    tracing::debug!(target: "bus::pump", event = "run.start", endpoint = %shared.spec.endpoint, message_id = %id, fence);
    let verdict = run.scope(shared.spec.pipeline.run(delivery)).await;
    if shared.signals.cut.is_cancelled() && matches!(verdict, Verdict::Release) {
        shared.cut.lock().push(id);
        tracing::warn!(target: "bus::pump", event = "run.cut", endpoint = %shared.spec.endpoint, message_id = %id, fence, "the run was cut off");
    } else {
        tracing::debug!(target: "bus::pump", event = "run.end", endpoint = %shared.spec.endpoint, message_id = %id, fence);
    }
    verdict
}
