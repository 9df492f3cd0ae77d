//! Runs messages, one at a time.

use std::sync::Arc;

use async_channel::Receiver;

use super::{Job, Shared};
use crate::message::{Delivery, Verdict};
use crate::pipeline::layers::dead_letter::{Crashes, crashed_too_often, crashes};
use crate::sender::Run;

/// Runs what comes until the channel is closed and empty.
pub(super) async fn run(shared: Arc<Shared>, queue: Receiver<Job>) {
    while let Ok(job) = queue.recv().await {
        if shared.signals.stop.is_cancelled() {
            // Stopping overtakes what is queued.
            shared.judged(job.key, job.delivery.envelope.id, Verdict::Release);
        } else if may_start(&shared, &job).await {
            start(&shared, job).await;
        }
    }
}

/// Whether the message may be started: its claim is certainly ours, and a singleton's intake is open. A message that
/// may not is given back or forgotten here.
async fn may_start(shared: &Shared, job: &Job) -> bool {
    if let Some(term) = &shared.spec.term
        && !term.intake_open()
    {
        tokio::select! {
            () = term.intake_opened() => {}
            () = shared.signals.stop.cancelled() => {
                shared.judged(job.key, job.delivery.envelope.id, Verdict::Release);
                return false;
            }
        }
    }
    if shared.claims.is_alive(job.key, shared.spec.clock.now()) {
        return true;
    }
    tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, message_id = %job.delivery.envelope.id, "the claim ran out before the message was started: left to whoever claims it next");
    shared.abandon(job.key);
    false
}

async fn start(shared: &Arc<Shared>, job: Job) {
    let Job { key, delivery } = job;
    let id = delivery.envelope.id;
    let verdict = match crashes(&delivery, shared.spec.settings.dead_letter_delivery_limit) {
        Crashes::Few => {
            let _among_others = shared.alone.read().await;
            attempt(shared, key, delivery).await
        }
        Crashes::RunAlone => {
            let _alone = shared.alone.write().await;
            attempt_alone(shared, key, delivery).await
        }
        Crashes::GiveUp => crashed_too_often(&delivery),
    };
    shared.judged(key, id, verdict);
}

/// A run that is suspected of ending the process: the store knows of it before it starts.
async fn attempt_alone(shared: &Arc<Shared>, key: u64, delivery: Delivery) -> Verdict {
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

async fn attempt(shared: &Arc<Shared>, key: u64, delivery: Delivery) -> Verdict {
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
