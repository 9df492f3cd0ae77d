//! Claims what there is room for and hands it to the workers.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use futures_util::FutureExt;
use tokio::task::JoinSet;

use super::{Job, Shared, report, worker};
use crate::error::{Error, ErrorKind};
use crate::message::{Delivery, Verdict};
use crate::reconnect::Backoff;
use crate::scope::Scope;

/// However long the store was away, it is asked again this soon: messages are processed within seconds of its return.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Why nothing more is claimed.
enum End {
    /// The pump was told to stop.
    Told,
    /// What is read is not there any more.
    Gone,
    /// The backend panicked.
    Panicked(Panic),
}

/// Runs until the pump is told to stop, then gives back what has not been started and waits for what has. `false` if it
/// ended because its endpoint is gone: whoever opens a consumer makes it again.
pub(super) async fn run(shared: Arc<Shared>, jobs: Sender<Job>, queue: Receiver<Job>) -> bool {
    let mut workers = JoinSet::new();
    let end = claim(&shared, &jobs, &queue, &mut workers).await;
    match &end {
        End::Told | End::Gone => shared.vitals.receive.ends(),
        // Nothing is received until what runs has ended.
        End::Panicked(_) => shared.vitals.receive.fails(ErrorKind::Internal),
    }
    jobs.close();
    give_back(&shared, &queue);
    while let Some(ended) = workers.join_next().await {
        report(&shared, &ended);
    }
    match end {
        End::Told => true,
        End::Gone => false,
        // Only now: that the pump has failed means that nothing of it runs any more.
        End::Panicked(panic) => resume_unwind(panic),
    }
}

/// Claims, and keeps as many workers as there is work for, until there is a reason not to.
async fn claim(
    shared: &Arc<Shared>,
    jobs: &Sender<Job>,
    queue: &Receiver<Job>,
    workers: &mut JoinSet<()>,
) -> End {
    let mut backoff = Backoff::new(Duration::from_millis(100), LONGEST_PAUSE);
    while let Some(room) = room(shared).await {
        let vitals = &shared.vitals;
        vitals.receive.begins(shared.spec.clock.now());
        let received = match receive(shared, room).await {
            Ok(received) => received,
            Err(panic) => return End::Panicked(panic),
        };
        match received {
            Ok(batch) => {
                vitals.received(batch.len(), shared.spec.clock.now());
                backoff.reset();
                let now = shared.spec.clock.wall();
                for mut delivery in batch {
                    delivery.age = now.since(delivery.envelope.sent_at);
                    hand_on(shared, jobs, delivery);
                }
                grow(shared, workers, queue);
            }
            Err(error) if error.kind() == ErrorKind::TermLost => {
                shared.heed(&error);
                tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, fence = shared.fence(), error = %error, "the term is over: nothing more is claimed");
                shared.signals.stop.cancelled().await;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                tracing::warn!(target: "bus::pump", endpoint = %shared.spec.endpoint, error = %error, "what is read is gone");
                return End::Gone;
            }
            Err(error) => {
                vitals.receive.fails(error.kind());
                wait_out(shared, &mut backoff, &error).await;
            }
        }
    }
    End::Told
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

/// What a backend said when it panicked.
type Panic = Box<dyn Any + Send>;

/// One call of `receive`, never dropped: it is told to return instead.
async fn receive(shared: &Shared, room: usize) -> Result<Result<Vec<Delivery>, Error>, Panic> {
    let stop = shared.signals.stop.child_token();
    let call = AssertUnwindSafe(async { shared.spec.consumer.receive(room, &stop).await }).catch_unwind();
    let mut call = std::pin::pin!(call);
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
    let bytes = delivery.envelope.bytes();
    shared.waits(bytes);
    // The channel is unbounded and closed by this task alone.
    let _ = jobs.try_send(Job { key, bytes, delivery });
}

/// Starts workers until there are enough for what waits, `max_concurrent_calls` at most.
fn grow(shared: &Arc<Shared>, workers: &mut JoinSet<()>, queue: &Receiver<Job>) {
    let wanted = shared.open.load(Ordering::Acquire).min(shared.spec.settings.max_concurrent_calls);
    // One that has ended before its time has told why by its panic.
    while let Some(ended) = workers.try_join_next() {
        report(shared, &ended);
    }
    while workers.len() < wanted {
        workers.spawn(worker::run(Arc::clone(shared), queue.clone()));
    }
}

/// Releases what no worker has taken yet, so that another process can have it at once.
fn give_back(shared: &Shared, queue: &Receiver<Job>) {
    while let Ok(job) = queue.try_recv() {
        shared.waits_no_more(job.bytes);
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
