//! Keeps claims alive: all of them in one call, several times a lease, from receipt to settlement.

use std::sync::Arc;

use super::Shared;
use crate::error::ErrorKind;

/// Extends all claims three times a lease; ends when it is dropped.
pub(super) async fn run(shared: Arc<Shared>) {
    let lease = shared.spec.shortest_lease();
    // After a call that failed there is time for two more before the claims run out.
    let mut pause = tokio::time::interval(lease / 3);
    pause.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        if shared.claims.is_empty() {
            shared.vitals.extend.ends();
            // A pump without work does not wake up.
            shared.claims.taken().await;
            pause.reset();
        }
        pause.tick().await;
        name_the_stuck(&shared);
        if !extend(&shared).await {
            // The store is not there: ask again sooner than in a third of the lease.
            pause.reset_after(lease / 10);
        }
    }
}

/// Says which runs should have ended by now and go on: nothing but their own thread can end them. From then on they hold
/// up neither a run that is to be made alone nor, if they are one, all the others.
fn name_the_stuck(shared: &Shared) {
    let longest = shared.spec.pipeline.longest();
    for id in shared.running.overdue(shared.spec.clock.now(), longest) {
        tracing::warn!(target: "bus::pump", event = "run.stuck", endpoint = %shared.spec.endpoint, message_id = %id, fence = shared.fence(), "the run goes on after its message_lock_timeout and cannot be dropped: its handler blocks its thread, or a middleware keeps it. It holds its place among the max_concurrent_calls until it ends");
    }
}

/// One call for all claims; `false` if the store could not be asked.
async fn extend(shared: &Shared) -> bool {
    let (keys, mut receipts) = shared.claims.living();
    if keys.is_empty() || shared.is_late() {
        // There is nothing to ask for any more.
        shared.vitals.extend.ends();
        return true;
    }
    let lease = shared.spec.settings.lease;
    let asked = shared.spec.clock.now();
    shared.vitals.extend.begins(asked);
    let answers = shared.spec.consumer.extend(&mut receipts, lease).await;
    let mut failed = Vec::new();
    for ((key, receipt), answer) in keys.into_iter().zip(receipts).zip(answers) {
        match answer {
            Ok(()) => shared.claims.extended(key, receipt, asked, lease),
            Err(error) if matches!(error.kind(), ErrorKind::ReceiptLost | ErrorKind::TermLost) => {
                shared.heed(&error);
                if let Some(id) = shared.claims.lost(key) {
                    tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, message_id = %id, error = %error, "the claim is lost");
                }
            }
            Err(error) => failed.push(error),
        }
    }
    if let Some(error) = failed.first() {
        shared.vitals.extend.fails(error.kind());
        tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, claims = failed.len(), error = ?error, "cannot extend claims; trying again");
    } else {
        shared.vitals.extend.ends();
    }
    failed.is_empty()
}
