//! Storing messages.

use std::sync::Arc;

use super::fence;
use super::row::Columns;
use super::transaction::{EndpointId, Tx};
use super::work::Call;
use super::writer::Writer;
use crate::clock::Timestamp;
use crate::contract::{BoxFuture, Delay, Due, FenceGuard, Outgoing, Placed, Sender, item_by_item};
use crate::error::Result;
use crate::message::Target;

/// Why a message cannot be stored, decided before anything is written.
pub(super) fn admit(tx: &Tx<'_>, message: &Outgoing, max_body: usize) -> rusqlite::Result<Result<()>> {
    match message.check_size(max_body) {
        Ok(()) => fence::check_guard(tx, message.guard.as_ref()),
        Err(refusal) => Ok(Err(refusal.in_backend("sqlite"))),
    }
}

/// Stores a message that has been admitted: once in a queue, or in each of the topic's subscriptions. It can be taken
/// back where it waits for its time.
pub(super) fn store(tx: &mut Tx<'_>, message: &Outgoing) -> rusqlite::Result<Placed> {
    let due = message.due.and_then(|due| later(due, tx.wall));
    let columns = Columns::of(&message.envelope);
    let mut ids = Vec::new();
    match &message.target {
        Target::Queue(name) => {
            let queue = tx.queue(name)?;
            let id = insert(tx, queue, due, &columns)?;
            if due.is_some() {
                ids.push(id.to_string());
            }
        }
        Target::Topic(name) => {
            for subscription in tx.subscriptions(name)? {
                let id = insert(tx, subscription, due, &columns)?;
                if due.is_some() {
                    ids.push(id.to_string());
                }
            }
        }
    }
    Ok(Placed::new(ids.join(",")))
}

/// When it becomes available, unless that is now.
fn later(due: Due, now: Timestamp) -> Option<Timestamp> {
    let due = match due {
        Due::In(delay) => now + delay,
        Due::At(moment) => moment,
    };
    (due > now).then_some(due)
}

fn insert(
    tx: &mut Tx<'_>,
    endpoint: EndpointId,
    due: Option<Timestamp>,
    c: &Columns<'_>,
) -> rusqlite::Result<i64> {
    let id = endpoint.first() | tx.next_number()?;
    tx.touch(endpoint);
    match due {
        None => tx.insert()?.execute((id, c.id, c.message_type, &c.headers, c.sent_at, c.ttl, c.body)),
        Some(due) => tx.execute(
            include_str!("sql/delayed_insert.sql"),
            (id, endpoint.0, due.as_micros(), c.id, c.message_type, &c.headers, c.sent_at, c.ttl, c.body),
        ),
    }?;
    Ok(id)
}

/// Sends to the store.
pub(super) struct SqliteSender {
    pub(super) writer: Arc<Writer>,
    pub(super) max_body: usize,
}

impl Sender for SqliteSender {
    fn send(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Placed>>> {
        Box::pin(async move {
            let count = batch.len();
            item_by_item(count, self.store(batch).await)
        })
    }
}

impl SqliteSender {
    async fn store(&self, batch: Vec<Outgoing>) -> Result<Vec<Result<Placed>>> {
        let bytes = batch.iter().map(|message| message.envelope.bytes()).sum();
        let room = self.writer.room(bytes).await?;
        let max_body = self.max_body;
        let (work, answer) = Call::writing(move |tx| {
            let store = |message| match admit(tx, message, max_body)? {
                Ok(()) => store(tx, message).map(Ok),
                Err(refusal) => Ok(Err(refusal)),
            };
            batch.iter().map(store).collect::<rusqlite::Result<Vec<_>>>()
        });
        self.writer.submit(work.weighing(bytes, room).adding()).await?;
        self.writer.answered(answer.await).await
    }
}

/// Takes delayed messages back.
pub(super) struct SqliteDelay(pub(super) Arc<Writer>);

impl Delay for SqliteDelay {
    fn cancel<'a>(
        &'a self,
        placed: &'a Placed,
        guard: Option<&'a FenceGuard>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let guard = guard.cloned();
            let ids: Vec<i64> = match placed.as_str().split(',').map(str::parse).collect() {
                Ok(ids) => ids,
                // Nothing of ours, or a message that was available at once.
                Err(_) => return Ok(false),
            };
            let cancelled = self.0.write(move |tx| match fence::check_guard(tx, guard.as_ref())? {
                Ok(()) => cancel(tx, &ids).map(Ok),
                Err(lost) => Ok(Err(lost)),
            });
            cancelled.await?
        })
    }
}

/// Takes back all copies of a message, or none: some may have become available already.
fn cancel(tx: &mut Tx<'_>, ids: &[i64]) -> rusqlite::Result<bool> {
    let now = tx.wall.as_micros();
    for id in ids {
        let mut statement = tx.statement(include_str!("sql/delayed_cancellable.sql"))?;
        if !statement.query_row((id, now), |row| row.get::<_, bool>(0))? {
            return Ok(false);
        }
    }
    for id in ids {
        tx.execute(include_str!("sql/delayed_delete.sql"), [id])?;
    }
    Ok(!ids.is_empty())
}
