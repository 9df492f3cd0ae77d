//! Keeps claims alive: all of them in one call, several times a lease, from receipt to settlement.

use std::sync::Arc;

use super::Shared;
use crate::error::ErrorKind;

/// Extends all claims three times a lease (a singleton's lock's, where that is shorter); ends when it is dropped.
pub(super) async fn run(shared: Arc<Shared>) {
    let lease = shared.spec.settings.lease;
    let lease = shared.spec.lock_lease.map_or(lease, |lock_lease| lease.min(lock_lease));
    // After a call that failed there is time for two more before the claims run out.
    let mut pause = tokio::time::interval(lease / 3);
    pause.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        pause.tick().await;
        if !extend(&shared).await {
            // The store is not there: ask again sooner than in a third of the lease.
            pause.reset_after(lease / 10);
        }
    }
}

/// One call for all claims; `false` if the store could not be asked.
async fn extend(shared: &Shared) -> bool {
    let (keys, mut receipts) = shared.claims.living();
    if keys.is_empty() {
        return true;
    }
    let lease = shared.spec.settings.lease;
    let asked = shared.spec.clock.now();
    let answers = shared.spec.consumer.extend(&mut receipts, lease).await;
    let mut reached = true;
    for ((key, receipt), answer) in keys.into_iter().zip(receipts).zip(answers) {
        match answer {
            Ok(()) => shared.claims.extended(key, receipt, asked, lease),
            Err(error) if matches!(error.kind(), ErrorKind::ReceiptLost | ErrorKind::TermLost) => {
                shared.heed(&error);
                if let Some(id) = shared.claims.lost(key) {
                    tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, message_id = %id, error = %error, "the claim is lost");
                }
            }
            Err(error) => {
                tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, error = ?error, "cannot extend a claim");
                reached = false;
            }
        }
    }
    reached
}
