//! Runs messages, one at a time.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_channel::Receiver;
use futures_util::FutureExt;

use super::claims::Hold;
use super::throttle::Permit;
use super::{Job, Key, Shared};
use crate::error::{Error, ErrorKind};
use crate::message::{Delivery, Verdict};
use crate::pipeline::layers::dead_letter::{Attempt, Crashes, crashed_too_often, crashes, judge};
use crate::sender::Run;
use crate::singleton::Term;

/// How long what was released by user code, and not by the end of anything, waits before it may be claimed again.
const LEISURE: Duration = Duration::from_secs(1);

/// Runs what comes until the channel is closed and empty.
pub(super) async fn run(shared: Arc<Shared>, queue: Receiver<Job>) {
    while let Ok(Job { key, bytes, delivery }) = queue.recv().await {
        shared.waits_no_more(bytes);
        let (id, attempt) = (delivery.envelope.id, Attempt::of(&delivery));
        // The pipeline has caught what user code does. A destructor of what it drops at the end, say, is beyond it; and a
        // worker that dies with its message would leave the message claimed for ever.
        let judging = AssertUnwindSafe(verdict_on(&shared, key, delivery)).catch_unwind().await;
        let verdict = judging.unwrap_or_else(|_| {
            let error = Error::new(ErrorKind::Handler, "something panicked around the run");
            let failed = Verdict::Retry { after: None, error };
            judge(failed, attempt, &shared.spec.settings, &shared.spec.endpoint, id)
        });
        shared.judged(key, id, verdict);
    }
}

async fn verdict_on(shared: &Arc<Shared>, key: Key, delivery: Delivery) -> Verdict {
    let stop = &shared.signals.stop;
    let verdict = match crashes(&delivery, shared.spec.settings.dead_letter_delivery_limit) {
        // Not started while it waits here: stopping overtakes it.
        Crashes::Few => {
            let no_lone = stop.run_until_cancelled(Arc::clone(&shared.alone).read_owned()).await;
            let Some(_no_lone) = no_lone else { return Verdict::Release };
            match started(shared, key, &delivery).await {
                Some(_permit) => attempt(shared, key, delivery, Hold::AmongOthers { _no_lone }).await,
                None => return Verdict::Release,
            }
        }
        Crashes::RunAlone => {
            let no_other = stop.run_until_cancelled(Arc::clone(&shared.alone).write_owned()).await;
            let Some(_no_other) = no_other else { return Verdict::Release };
            match started(shared, key, &delivery).await {
                Some(_permit) => attempt_alone(shared, key, delivery, Hold::Alone { _no_other }).await,
                None => return Verdict::Release,
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

/// Waits until the message may be started: nothing stops, its claim is certainly ours, a singleton's intake is open, and the
/// host's throttle has a permit. It is the last that is waited for, so that nobody holds one in vain. `None` if it is not to
/// be started.
async fn started(shared: &Shared, key: Key, delivery: &Delivery) -> Option<Permit> {
    let stop = &shared.signals.stop;
    loop {
        if let Some(term) = &shared.spec.term {
            stop.run_until_cancelled(term.intake_opened()).await?;
        }
        let permit = stop.run_until_cancelled(shared.spec.throttle.permit()).await?;
        if shared.spec.term.as_ref().is_none_or(Term::intake_open) {
            return may_start(shared, key, delivery).then_some(permit);
        }
    }
}

/// Whether nothing stops, and the claim is certainly ours.
fn may_start(shared: &Shared, key: Key, delivery: &Delivery) -> bool {
    if shared.signals.stop.is_cancelled() {
        return false;
    }
    let alive = shared.claims.is_alive(key, shared.spec.clock.now());
    if !alive {
        tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, message_id = %delivery.envelope.id, "the claim ran out before the message was started: left to whoever claims it next");
    }
    alive
}

/// A run that is suspected of ending the process: the store knows of it before it starts.
async fn attempt_alone(shared: &Arc<Shared>, key: Key, delivery: Delivery, hold: Hold) -> Verdict {
    let id = delivery.envelope.id;
    tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, message_id = %id, crashes = delivery.crashes, "too many crashes: run alone, once");
    let Some(receipt) = shared.claims.receipt(key) else { return Verdict::Release };
    match shared.spec.consumer.record_alone(&receipt).await {
        Ok(()) => attempt(shared, key, delivery, hold).await,
        Err(error) => {
            tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, message_id = %id, error = ?error, "its run alone could not be recorded, so it was not made");
            Verdict::Release
        }
    }
}

async fn attempt(shared: &Arc<Shared>, key: Key, delivery: Delivery, hold: Hold) -> Verdict {
    let id = delivery.envelope.id;
    let fence = shared.fence();
    let mut run = Run::of(&delivery);
    if let Some(term) = &shared.spec.term {
        run = run.in_term(term.clone(), shared.spec.transport, shared.guard(term));
    }
    let begun = shared.spec.clock.now();
    let _running = shared.running.enter(key, id, hold, begun);
    shared.spec.runs.began();
    tracing::debug!(target: "bus::pump", event = "run.start", endpoint = %shared.spec.endpoint, message_id = %id, fence);
    let verdict = run.scope(shared.spec.pipeline.run(delivery)).await;
    shared.vitals.ran(&verdict);
    shared.spec.runs.ended(shared.spec.clock.now().since(begun), &verdict);
    if shared.signals.cut.is_cancelled() && matches!(verdict, Verdict::Release) {
        shared.cut.lock().push(id);
        tracing::warn!(target: "bus::pump", event = "run.cut", endpoint = %shared.spec.endpoint, message_id = %id, fence, "the run was cut off");
    } else {
        tracing::debug!(target: "bus::pump", event = "run.end", endpoint = %shared.spec.endpoint, message_id = %id, fence);
    }
    verdict
}
