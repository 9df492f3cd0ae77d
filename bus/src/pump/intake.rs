//! Claims what there is room for and hands it to the workers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use tokio::task::JoinSet;

use super::{Job, Shared, report, worker};
use crate::contract::BoxFuture;
use crate::error::{Error, ErrorKind};
use crate::message::{Delivery, Verdict};
use crate::reconnect::Backoff;
use crate::scope::Scope;

/// Runs until the pump is told to stop, then gives back what has not been started and waits for what has.
pub(super) async fn run(shared: Arc<Shared>, jobs: Sender<Job>, queue: Receiver<Job>) {
    let mut workers = JoinSet::new();
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    while let Some(room) = room(&shared).await {
        match receive(&shared, room).await {
            Ok(batch) => {
                backoff.reset();
                for delivery in batch {
                    hand_on(&shared, &jobs, delivery);
                }
                grow(&shared, &mut workers, &queue);
            }
            Err(error) if error.kind() == ErrorKind::TermLost => {
                shared.heed(&error);
                tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, fence = shared.fence(), error = %error, "the term is over: nothing more is claimed");
                shared.signals.stop.cancelled().await;
            }
            Err(error) => wait_out(&shared, &mut backoff, &error).await,
        }
    }
    jobs.close();
    give_back(&shared, &queue);
    while let Some(ended) = workers.join_next().await {
        report(&shared, ended);
    }
}

/// Waits until something may be claimed, and answers how much; `None` when the pump is to stop.
async fn room(shared: &Shared) -> Option<usize> {
    loop {
        let notified = shared.room.notified();
        if shared.signals.stop.is_cancelled() {
            return None;
        }
        if let Some(term) = &shared.spec.term
            && !term.intake_open()
        {
            tokio::select! {
                () = shared.signals.stop.cancelled() => return None,
                () = term.intake_opened() => continue,
            }
        }
        match shared.room() {
            0 => tokio::select! {
                () = shared.signals.stop.cancelled() => return None,
                () = notified => {}
            },
            room => return Some(room),
        }
    }
}

/// One call of `receive`, never dropped: it is told to return instead.
async fn receive(shared: &Shared, room: usize) -> Result<Vec<Delivery>, Error> {
    let stop = shared.signals.stop.child_token();
    let mut call: BoxFuture<'_, _> = shared.spec.consumer.receive(room, &stop);
    let Some(term) = &shared.spec.term else { return call.await };
    tokio::select! {
        biased;
        batch = &mut call => return batch,
        () = term.intake_closed() => stop.cancel(),
    }
    call.await
}

/// Gives a delivery its scope and place among the claims, and to the workers.
fn hand_on(shared: &Shared, jobs: &Sender<Job>, mut delivery: Delivery) {
    delivery.scope = Scope::new(Arc::clone(&shared.spec.host), shared.signals.cancel.clone());
    if let Some(term) = &shared.spec.term {
        delivery.scope.insert(Arc::new(term.clone()));
    }
    let claimed_at = delivery.claimed_at.unwrap_or_else(|| shared.spec.clock.now());
    let key = shared.claims.add(&delivery, claimed_at + shared.spec.settings.lease);
    shared.open.fetch_add(1, Ordering::AcqRel);
    // The channel is unbounded and closed by this task alone.
    let _ = jobs.try_send(Job { key, delivery });
}

/// Starts workers until there are enough for what waits, `max_concurrent_calls` at most.
fn grow(shared: &Arc<Shared>, workers: &mut JoinSet<()>, queue: &Receiver<Job>) {
    let wanted = shared.open.load(Ordering::Acquire).min(shared.spec.settings.max_concurrent_calls);
    while workers.len() < wanted {
        workers.spawn(worker::run(Arc::clone(shared), queue.clone()));
    }
}

/// Releases what no worker has taken yet, so that another process can have it at once.
fn give_back(shared: &Shared, queue: &Receiver<Job>) {
    while let Ok(job) = queue.try_recv() {
        shared.judged(job.key, job.delivery.envelope.id, Verdict::Release);
    }
}

async fn wait_out(shared: &Shared, backoff: &mut Backoff, error: &Error) {
    let pause = backoff.next();
    tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, error = ?error, ?pause, "cannot receive; trying again");
    tokio::select! {
        () = shared.signals.stop.cancelled() => {}
        () = tokio::time::sleep(pause) => {}
    }
}
