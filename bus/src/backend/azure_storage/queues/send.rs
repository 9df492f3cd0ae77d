//! Sending, and taking back what was sent for later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::error::{Failure, error};
use super::clock::DOUBT;
use super::message::{LARGEST_INLINE, Stored};
use super::service::{LONGEST_WAIT, PATIENCE, Put, Service};
use crate::clock::Timestamp;
use crate::coalesce::{Progress, all_or_unknown, not_tried};
use crate::contract::{BoxFuture, Delay, Due, FenceGuard, Outgoing, Placed, Sender};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Target;
use crate::wake::Hints;

/// The largest body: in one piece in memory here, and on its way.
pub(super) const MAX_BODY: usize = 16 << 20;
/// How many messages are on their way at the same time; other callers wait.
const AT_ONCE: usize = 64;

/// What is sent from this process.
pub(super) struct Outbox {
    pub(super) service: Arc<Service>,
    /// Told of each queue into which this process has put something that is available at once.
    pub(super) hints: Hints<String>,
    pub(super) closed: CancellationToken,
    /// What goes on although nobody waits for it any more, until the store is closed.
    pub(super) under_way: TaskTracker,
    room: Semaphore,
    progress: Progress,
}

impl Outbox {
    pub(super) fn new(service: Arc<Service>) -> Self {
        Outbox {
            service,
            hints: Hints::default(),
            closed: CancellationToken::new(),
            under_way: TaskTracker::new(),
            room: Semaphore::new(AT_ONCE),
            progress: Progress::default(),
        }
    }

    /// Takes nothing more, and returns when what is under way has been answered.
    pub(super) async fn close(&self) {
        self.closed.cancel();
        self.under_way.close();
        self.under_way.wait().await;
    }

    /// Sends messages, each answered for: to each target one after the other, so that they keep their order.
    pub(super) async fn post(&self, batch: Vec<Outgoing>) -> Vec<Result<Placed>> {
        let mut targets: BTreeMap<Target, Vec<(usize, Outgoing)>> = BTreeMap::new();
        for (number, outgoing) in batch.into_iter().enumerate() {
            targets.entry(outgoing.target.clone()).or_default().push((number, outgoing));
        }
        let posting = targets.into_iter().map(|(target, items)| self.post_to(target, items));
        let mut answers: Vec<_> = join_all(posting).await.into_iter().flatten().collect();
        answers.sort_by_key(|(number, _)| *number);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    async fn post_to(&self, target: Target, items: Vec<(usize, Outgoing)>) -> Vec<(usize, Result<Placed>)> {
        let queues = self.queues_of(&target).await;
        let (mut answers, mut away) = (Vec::with_capacity(items.len()), None);
        for (number, outgoing) in items {
            let answer = match (&queues, &away) {
                (Err(error), _) => Err(error.clone()),
                // The rest would wait as long, each after the other.
                (_, Some(cause)) => Err(not_tried(Some(Error::clone(cause)))),
                (Ok(queues), None) => self.post_one(queues, &outgoing).await.map_err(|unsent| {
                    away = unsent.is_outage.then(|| unsent.error.clone());
                    unsent.error
                }),
            };
            answers.push((number, answer));
        }
        answers
    }

    /// The queues that get what is sent there: those of a topic are asked for each time, since any host may have made one
    /// just now.
    async fn queues_of(&self, target: &Target) -> Result<Vec<String>> {
        let prefix = &self.service.prefix;
        match target {
            Target::Queue(name) => Ok(vec![prefix.queue_of(&crate::message::Endpoint::Queue(name.clone()))?]),
            Target::Topic(topic) => {
                let listed = self.service.list(&prefix.beginning_of(topic)).await;
                let listed = listed.map_err(|failure| self.service.describe(failure))?;
                Ok(listed.into_iter().filter(|queue| prefix.endpoint_of(queue).is_some()).collect())
            }
        }
    }

    async fn post_one(&self, queues: &[String], outgoing: &Outgoing) -> Result<Placed, Unsent> {
        outgoing.check_size(MAX_BODY)?;
        let now = self.service.clock.now();
        let (wait, due) = match outgoing.due {
            None => (Duration::ZERO, now),
            Some(Due::In(wait)) => (wait, now + wait),
            Some(Due::At(due)) => (due.since(now), due),
        };
        let mut stored = Stored::sent(&outgoing.envelope);
        stored.due = (wait > LONGEST_WAIT).then_some(due);
        let is_topic = matches!(outgoing.target, Target::Topic(_));
        let posting = queues.iter().map(|queue| self.post_copy(queue, is_topic, stored.clone(), wait));
        let answers = join_all(posting).await;
        let is_outage = answers.iter().any(|answer| answer.as_ref().is_err_and(|unsent| unsent.is_outage));
        // What has no copy was for a subscription that has gone.
        let copies =
            answers.into_iter().filter_map(|answer| answer.map_err(|unsent| unsent.error).transpose());
        let copies = all_or_unknown(copies).map_err(|error| Unsent { error, is_outage })?;
        if wait.is_zero() {
            for queue in queues {
                self.hints.tell(queue);
            }
            return Ok(Placed::new(AT_ONCE_PLACE));
        }
        let hidden_until = now + wait.min(LONGEST_WAIT);
        Place { due: due.as_micros(), hidden_until: hidden_until.as_micros(), copies }
            .placed()
            .map_err(Unsent::from)
    }

    /// Puts one copy into one queue; `None` if a subscription has gone since it was listed.
    async fn post_copy(
        &self,
        queue: &str,
        is_topic: bool,
        stored: Stored,
        wait: Duration,
    ) -> Result<Option<Copy>, Unsent> {
        let _permit = tokio::select! {
            biased;
            permit = self.room.acquire() => permit.map_err(|_| closed())?,
            () = self.progress.stalled(Instant::now(), PATIENCE) => {
                return Err(Unsent { error: not_tried(None), is_outage: true });
            }
        };
        let text = stored.text(LARGEST_INLINE);
        let letter = self.service.fit(stored, text).await?;
        let mut answer = self.service.put(queue, &letter.text, wait).await;
        let is_gone =
            |failure: &Failure| failure.is_missing_queue() || (is_topic && failure.is_being_deleted());
        if answer.as_ref().is_err_and(is_gone) {
            if is_topic {
                self.service.drop_blob(letter.blob.as_deref()).await;
                return Ok(None);
            }
            // A producer may start before its consumer.
            answer = match self.service.create(queue).await {
                Ok(()) => self.service.put(queue, &letter.text, wait).await,
                Err(failure) => Err(failure),
            };
        }
        if !answer.as_ref().is_err_and(Failure::is_outage) {
            self.progress.made();
        }
        match answer {
            Ok(Put { id, receipt }) => {
                Ok(Some(Copy { queue: queue.to_owned(), id, receipt, blob: letter.blob }))
            }
            Err(failure) => {
                let (is_certain, is_outage) = (failure.is_certain(), failure.is_outage());
                if is_certain {
                    self.service.drop_blob(letter.blob.as_deref()).await;
                }
                let error = self.service.describe(failure);
                Err(Unsent { error: if is_certain { error } else { unknown(error) }, is_outage })
            }
        }
    }
}

/// Why a message was not sent, or perhaps not.
struct Unsent {
    error: Error,
    /// The service is away.
    is_outage: bool,
}

impl From<Error> for Unsent {
    fn from(error: Error) -> Self {
        Unsent { error, is_outage: false }
    }
}

fn unknown(cause: Error) -> Error {
    error(ErrorKind::OutcomeUnknown, "no answer came: the message may be in the queue, or not")
        .caused_by(cause)
}

/// Where what is available at once lies: it cannot be taken back.
const AT_ONCE_PLACE: &str = "at once";

/// Where a message lies that waits for its time.
#[derive(Serialize, Deserialize)]
struct Place {
    /// When it becomes available.
    due: i64,
    /// Until when certainly nobody has claimed it.
    #[serde(default)]
    hidden_until: i64,
    copies: Vec<Copy>,
}

/// One copy, as it can be taken back until somebody has claimed it.
#[derive(Serialize, Deserialize)]
struct Copy {
    queue: String,
    id: String,
    receipt: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blob: Option<String>,
}

impl Place {
    /// Whether nobody else can have claimed it by now, whatever the clocks may differ by.
    fn is_hidden(&self, now: Timestamp) -> bool {
        now + DOUBT < Timestamp::from_micros(self.hidden_until)
    }

    fn placed(&self) -> Result<Placed> {
        let text = serde_json::to_string(self).map_err(|cause| {
            error(ErrorKind::Internal, "where a message lies cannot be written down").caused_by(cause)
        })?;
        Ok(Placed::new(text))
    }
}

/// The sender that callers share.
pub(super) struct QueueSender(pub(super) Arc<Outbox>);

impl Sender for QueueSender {
    fn send(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Placed>>> {
        Box::pin(async move {
            let count = batch.len();
            let all = |error: Error| (0..count).map(|_| Err(error.clone())).collect();
            if self.0.closed.is_cancelled() {
                return all(closed());
            }
            // A task of its own: a caller who gives up midway leaves no half of it.
            let outbox = Arc::clone(&self.0);
            let posting = self.0.under_way.spawn(async move { outbox.post(batch).await });
            posting.await.unwrap_or_else(|cause| {
                all(error(ErrorKind::Internal, "sending came to a sudden end").caused_by(cause))
            })
        })
    }
}

pub(super) fn closed() -> Error {
    error(ErrorKind::Closed, "the store has been closed")
}

/// Takes back what waits for its time.
pub(super) struct QueueDelay(pub(super) Arc<Outbox>);

impl QueueDelay {
    async fn take_back(&self, placed: &Placed) -> Result<bool> {
        if self.0.closed.is_cancelled() {
            return Err(closed());
        }
        let Ok(place) = serde_json::from_str::<Place>(placed.as_str()) else { return Ok(false) };
        let (service, place) = (&self.0.service, &place);
        if Timestamp::from_micros(place.due) <= service.clock.now() {
            return Ok(false);
        }
        let taking = place.copies.iter().map(|copy| async move {
            let called = service.delete(&copy.queue, (&copy.id, &copy.receipt)).await;
            match called.answer {
                Ok(()) => {}
                // An earlier try has deleted it, unless somebody has claimed it meanwhile.
                Err(failure) if failure.is_stale_claim() => {
                    if !called.perhaps_before || !place.is_hidden(service.clock.now()) {
                        return Ok(false);
                    }
                }
                Err(failure) => return Err(service.describe(failure)),
            }
            service.drop_blob(copy.blob.as_deref()).await;
            Ok(true)
        });
        let taken: Result<Vec<bool>> = join_all(taking).await.into_iter().collect();
        Ok(taken?.contains(&true))
    }
}

impl Delay for QueueDelay {
    fn cancel<'a>(
        &'a self,
        placed: &'a Placed,
        _guard: Option<&'a FenceGuard>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.take_back(placed))
    }
}
