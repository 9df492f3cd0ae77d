//! Ends claims in the store. The only caller of `Consumer::settle`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::{Judged, Shared};
use crate::contract::Settlement;
use crate::error::{Error, ErrorKind, Result};
use crate::message::Verdict;
use crate::reconnect::Backoff;

/// How many verdicts ride together at most.
const BATCH: usize = 1024;

/// Settles whatever is ready, in one call, over and over; ends when it is dropped.
pub(super) async fn run(shared: Arc<Shared>, mut judged: UnboundedReceiver<Judged>) {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
    let mut batch = Vec::new();
    while judged.recv_many(&mut batch, BATCH).await > 0 {
        backoff.reset();
        while !batch.is_empty() {
            batch = settle(&shared, std::mem::take(&mut batch)).await;
            if !batch.is_empty() {
                tokio::time::sleep(backoff.next()).await;
                // What has become ready meanwhile rides along.
                while batch.len() < BATCH
                    && let Ok(next) = judged.try_recv()
                {
                    batch.push(next);
                }
            }
        }
    }
}

/// One call. Answers what has to be tried again.
async fn settle(shared: &Shared, batch: Vec<Judged>) -> Vec<Judged> {
    let (mut kept, mut settlements) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
    for judged in batch {
        // What was not an attempt may still be given back: its run has ended, or never began.
        if !matches!(judged.verdict, Verdict::Release) && shared.is_late() {
            let late =
                "the term was over before the verdict was, and the store keeps no fences: it is discarded";
            refused(shared, &judged, &Error::new(ErrorKind::TermLost, late));
            continue;
        }
        match shared.claims.receipt(judged.key) {
            Some(receipt) if !shared.claims.is_lost(judged.key) => {
                settlements.push(Settlement::new(receipt, judged.verdict.clone()));
                kept.push(judged);
            }
            _ => refused(
                shared,
                &judged,
                &Error::new(ErrorKind::ReceiptLost, "the claim was lost during the run"),
            ),
        }
    }
    if settlements.is_empty() {
        // Whoever has the messages now settles them.
        shared.vitals.settle.ends();
        return Vec::new();
    }
    let begun = shared.spec.clock.now();
    shared.vitals.settle.begins(begun);
    let mut answers = shared.spec.consumer.settle(settlements).await.into_iter();
    let took = shared.spec.clock.now().since(begun);
    let unanswered = || Err(Error::new(ErrorKind::Internal, "the backend answered for too few settlements"));
    let failed: Vec<_> = kept
        .into_iter()
        .filter_map(|judged| answered(shared, judged, answers.next().unwrap_or_else(unanswered)))
        .collect();
    shared.spec.runs.settled(took, failed.first().map(|(_, error)| error.kind()));
    if let Some((_, error)) = failed.first() {
        shared.vitals.settle.fails(error.kind());
        // Once for all of them: they may be many, and this is tried over and over.
        tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, messages = failed.len(), error = ?error, "cannot settle; trying again");
    } else {
        shared.vitals.settle.ends();
    }
    failed.into_iter().map(|(judged, _)| judged).collect()
}

/// Takes one answer in; gives the verdict back if it has to be tried again.
fn answered(shared: &Shared, judged: Judged, answer: Result<()>) -> Option<(Judged, Error)> {
    match answer {
        Ok(()) => {
            accepted(shared, &judged);
            None
        }
        // The outcome of a lost answer becomes known by asking again: then it is done, or the receipt is lost.
        Err(error)
            if shared.claims.is_alive(judged.key, shared.spec.clock.now()) && may_pass(shared, &error) =>
        {
            Some((judged, error))
        }
        Err(error) => {
            refused(shared, &judged, &error);
            None
        }
    }
}

/// Whether a verdict that met with this error may be taken yet. So may one that the store refuses because of who asks: the
/// password is being changed, say, and the work would be done twice if the verdict were thrown away for that. A host that
/// comes to its end does not wait for it: it may end because the store is lost.
fn may_pass(shared: &Shared, error: &Error) -> bool {
    let is_of_asker = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Config);
    error.is_transient()
        || error.kind() == ErrorKind::OutcomeUnknown
        || (is_of_asker && !shared.signals.stop.is_cancelled())
}

fn accepted(shared: &Shared, judged: &Judged) {
    tracing::debug!(target: "bus::pump", event = "settle.ok", endpoint = %shared.spec.endpoint, message_id = %judged.id, fence = shared.fence(), verdict = judged.verdict.as_str());
    shared.spec.runs.taken(&judged.verdict);
    shared.settled(judged.key);
}

/// The store did not take the verdict: whoever holds the message now will come to their own.
fn refused(shared: &Shared, judged: &Judged, error: &Error) {
    shared.heed(error);
    tracing::warn!(target: "bus::pump", event = "settle.refused", endpoint = %shared.spec.endpoint, message_id = %judged.id, fence = shared.fence(), verdict = judged.verdict.as_str(), error = %error, "the verdict was not taken: the message will be, or has been, delivered again");
    shared.settled(judged.key);
}
