//! Storing messages.

use std::sync::Arc;

use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::error::{Failure, error};
use super::fence;
use super::pool::within;
use super::row::{fence_column, headers_column, micros, moment_column};
use super::session::{Param, Session};
use super::statement;
use super::store::Store;
use super::wake::Topic;
use crate::coalesce::{Carry, Coalescer, Limits, is_outage, not_tried};
use crate::contract::{BoxFuture, Delay, Due, FenceGuard, Outgoing, Placed, Sender};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Endpoint, Target};

/// How many messages ride together at most.
const MOST_MESSAGES: usize = 1024;
/// How many bytes.
const MOST_BYTES: usize = 8 << 20;

/// Sends to the store.
pub(super) struct PostgresSender {
    store: Arc<Store>,
    coalescer: Coalescer<Outgoing, Placed>,
}

impl PostgresSender {
    pub(super) fn start(store: &Arc<Store>) -> Self {
        let carrier = Arc::new(Carrier(Arc::clone(store)));
        let limits = Limits {
            items: MOST_MESSAGES,
            bytes: MOST_BYTES,
            queued: 4 * MOST_MESSAGES,
            queued_bytes: 64 << 20,
            patience: store.config().deadline,
        };
        PostgresSender { store: Arc::clone(store), coalescer: Coalescer::start(limits, carrier) }
    }

    /// Takes no more messages; returns when what is under way has ended.
    pub(super) async fn close(&self) {
        self.coalescer.close().await;
    }
}

impl Sender for PostgresSender {
    fn send(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Placed>>> {
        Box::pin(async move {
            let max_body = self.store.config().max_body;
            let refusals: Vec<Option<Error>> =
                batch.iter().map(|message| admit(message, max_body).err()).collect();
            let mut refused = refusals.iter().map(Option::is_some);
            let fit: Vec<Outgoing> =
                batch.into_iter().filter(|_| !refused.next().unwrap_or_default()).collect();
            let mut answers = self.send_in_parts(fit).await.into_iter();
            let one = |refusal: Option<Error>| match refusal {
                Some(refusal) => Err(refusal),
                None => answers.next().unwrap_or_else(|| Err(unanswered())),
            };
            refusals.into_iter().map(one).collect()
        })
    }
}

impl PostgresSender {
    /// Sends what one statement may carry, one part after the other: all at once might never be done in time, and
    /// everybody else would wait for it. After a part that has failed as a whole the rest is not tried.
    async fn send_in_parts(&self, messages: Vec<Outgoing>) -> Vec<Result<Placed>> {
        let mut answers = Vec::with_capacity(messages.len());
        let mut rest = messages.into_iter().peekable();
        while rest.peek().is_some() {
            let (mut part, mut bytes) = (Vec::new(), 0);
            while part.len() < MOST_MESSAGES
                && let Some(message) =
                    rest.next_if(|next| bytes == 0 || bytes + next.envelope.bytes() <= MOST_BYTES)
            {
                bytes += message.envelope.bytes();
                part.push(message);
            }
            let answered = self.coalescer.submit(part, bytes).await;
            let failed = answered.iter().all(|answer| answer.as_ref().is_err_and(is_outage));
            answers.extend(answered);
            if failed {
                answers.extend(rest.by_ref().map(|_| Err(not_tried(None))));
            }
        }
        answers
    }
}

fn unanswered() -> Error {
    error(ErrorKind::Internal, "a message was given no answer")
}

/// Why a message cannot be stored, whatever the server says.
pub(super) fn admit(message: &Outgoing, max_body: usize) -> Result<()> {
    message.check_size(max_body).map_err(|refusal| refusal.in_backend("postgres"))?;
    if message.envelope.message_type.contains('\0') {
        return Err(error(ErrorKind::InvalidInput, "a message's type has no NUL in it"));
    }
    Ok(())
}

/// Carries batches to the server.
struct Carrier(Arc<Store>);

impl Carry<Outgoing, Placed> for Carrier {
    fn carry<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Result<Placed>>>> {
        Box::pin(async move {
            let answers = match self.store(batch).await {
                // Nothing was stored: the queue, or its table, had been removed. It is there again now.
                Err(failure) if is_missing_queue(&failure) || failure.is_missing_schema() => {
                    self.0.forget_endpoints();
                    self.store(batch).await
                }
                other => other,
            };
            let answers = answers.map_err(Failure::of_once)?;
            self.0.wake.tell(topics(batch));
            Ok(answers)
        })
    }
}

impl Carrier {
    async fn store(&self, batch: &[Outgoing]) -> Result<Vec<Result<Placed>>, Failure> {
        self.0.ensure_endpoints(&queues(batch)).await?;
        let mut session = self.0.durable.borrow().await?;
        let stored = within(self.0.config().deadline, store(&mut session, batch)).await;
        self.0.heeded(session.end(stored)).await
    }
}

/// The queues that messages go to, each once.
pub(super) fn queues(batch: &[Outgoing]) -> Vec<Endpoint> {
    let mut queues: Vec<Endpoint> = Vec::new();
    for message in batch {
        if let Target::Queue(name) = &message.target
            && !matches!(queues.last(), Some(Endpoint::Queue(last)) if last == name)
        {
            queues.push(Endpoint::Queue(name.clone()));
        }
    }
    queues.sort();
    queues.dedup();
    queues
}

/// Who is told that messages came.
pub(super) fn topics(batch: &[Outgoing]) -> Vec<Topic> {
    let mut targets: Vec<&Target> = batch.iter().map(|message| &message.target).collect();
    targets.sort();
    targets.dedup();
    targets.into_iter().map(|target| Topic::Messages(target.clone())).collect()
}

/// A queue that was there a moment ago is not: its messages found no endpoint, and nothing was stored.
pub(super) fn is_missing_queue(failure: &Failure) -> bool {
    failure.refusal() == Some(&SqlState::NOT_NULL_VIOLATION)
}

/// Stores messages in one statement.
pub(super) async fn store(session: &mut Session, batch: &[Outgoing]) -> Result<Vec<Result<Placed>>, Failure> {
    let plain = |message: &Outgoing| {
        matches!(message.target, Target::Queue(_)) && message.due.is_none() && message.guard.is_none()
    };
    let columns = Columns::of(batch);
    if batch.iter().all(plain) {
        session.query(&statement::SEND_TO_QUEUES, &columns.plain()).await?;
        return Ok(batch.iter().map(|_| Ok(Placed::new(""))).collect());
    }
    let extra = Extra::of(batch);
    let rows = session.query(&statement::SEND, &columns.all(&extra)).await?;
    let mut answers: Vec<Result<Placed>> = batch.iter().map(|message| Err(term_lost(message))).collect();
    for row in rows {
        let (place, waiting): (i64, Vec<i64>) = (row.try_get(0)?, row.try_get(1)?);
        let place = usize::try_from(place).ok().and_then(|place| answers.get_mut(place.wrapping_sub(1)));
        if let Some(answer) = place {
            let ids: Vec<String> = waiting.iter().map(ToString::to_string).collect();
            *answer = Ok(Placed::new(ids.join(",")));
        }
    }
    Ok(answers)
}

fn term_lost(message: &Outgoing) -> Error {
    match &message.guard {
        Some(guard) => error(ErrorKind::TermLost, "another fence is in force")
            .with("fence", guard.fence)
            .with("endpoint", &guard.endpoint),
        None => unanswered(),
    }
}

/// A batch, column by column.
struct Columns<'m> {
    targets: Vec<&'m str>,
    ids: Vec<Uuid>,
    types: Vec<&'m str>,
    headers: Vec<Option<String>>,
    sent_at: Vec<i64>,
    ttl: Vec<Option<i64>>,
    bodies: Vec<&'m [u8]>,
}

impl<'m> Columns<'m> {
    fn of(batch: &'m [Outgoing]) -> Self {
        let mut columns = Columns {
            targets: Vec::with_capacity(batch.len()),
            ids: Vec::with_capacity(batch.len()),
            types: Vec::with_capacity(batch.len()),
            headers: Vec::with_capacity(batch.len()),
            sent_at: Vec::with_capacity(batch.len()),
            ttl: Vec::with_capacity(batch.len()),
            bodies: Vec::with_capacity(batch.len()),
        };
        for Outgoing { target: Target::Queue(name) | Target::Topic(name), envelope, .. } in batch {
            columns.targets.push(name.as_str());
            columns.ids.push(*envelope.id.as_uuid());
            columns.types.push(&envelope.message_type);
            columns.headers.push(headers_column(&envelope.headers));
            columns.sent_at.push(envelope.sent_at.as_micros());
            columns
                .ttl
                .push(envelope.time_to_live.map(|live| i64::try_from(live.as_micros()).unwrap_or(i64::MAX)));
            columns.bodies.push(&envelope.body);
        }
        columns
    }

    fn plain(&self) -> [Param<'_>; 7] {
        [&self.targets, &self.ids, &self.types, &self.headers, &self.sent_at, &self.ttl, &self.bodies]
    }

    fn all<'c>(&'c self, extra: &'c Extra) -> [Param<'c>; 12] {
        [
            &self.targets,
            &extra.to_topic,
            &self.ids,
            &self.types,
            &self.headers,
            &self.sent_at,
            &self.ttl,
            &extra.due_in,
            &extra.due_at,
            &self.bodies,
            &extra.guards,
            &extra.fences,
        ]
    }
}

/// What not every message has.
#[derive(Default)]
struct Extra {
    to_topic: Vec<bool>,
    due_in: Vec<Option<i64>>,
    due_at: Vec<Option<i64>>,
    guards: Vec<Option<String>>,
    fences: Vec<Option<i64>>,
}

impl Extra {
    fn of(batch: &[Outgoing]) -> Self {
        let mut extra = Extra::default();
        for message in batch {
            extra.to_topic.push(matches!(message.target, Target::Topic(_)));
            extra.due_in.push(match message.due {
                Some(Due::In(delay)) => Some(micros(delay)),
                _ => None,
            });
            extra.due_at.push(match message.due {
                Some(Due::At(moment)) => Some(moment_column(moment)),
                _ => None,
            });
            extra.guards.push(message.guard.as_ref().map(|guard| guard.endpoint.to_string()));
            extra.fences.push(message.guard.as_ref().map(|guard| fence_column(guard.fence)));
        }
        extra
    }
}

/// Takes delayed messages back.
pub(super) struct PostgresDelay(pub(super) Arc<Store>);

impl Delay for PostgresDelay {
    fn cancel<'a>(
        &'a self,
        placed: &'a Placed,
        guard: Option<&'a FenceGuard>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let ids: Vec<i64> = match placed.as_str().split(',').map(str::parse).collect() {
                Ok(ids) => ids,
                // Nothing of ours, or a message that was available at once.
                Err(_) => return Ok(false),
            };
            self.try_cancel(&ids, guard).await.map_err(Failure::of_once)
        })
    }
}

impl PostgresDelay {
    async fn try_cancel(&self, ids: &[i64], guard: Option<&FenceGuard>) -> Result<bool, Failure> {
        let endpoint = guard.map(|guard| guard.endpoint.to_string());
        let fence = guard.map(|guard| fence_column(guard.fence));
        let cancelled = self.0.ask(&self.0.durable, &statement::CANCEL, &[&ids, &endpoint, &fence]).await?;
        if cancelled.is_empty()
            && let Some(guard) = guard
        {
            fence::check(&self.0, guard).await?;
        }
        Ok(!cancelled.is_empty())
    }
}
