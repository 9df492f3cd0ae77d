//! Messages that are stored within the user's own transaction.

use std::sync::Arc;

use super::fence::PostgresFencing;
use super::row::{headers_column, micros, moment_column};
use super::send;
use super::statement::in_schema;
use super::store::Store;
use crate::contract::{BoxFuture, Due, Enqueue, Fencing, Outgoing, SqlExecutor, SqlValue};
use crate::error::Result;
use crate::message::Target;

/// Stores messages by the same function that the user's own SQL calls.
pub(super) struct PostgresEnqueue(pub(super) Arc<Store>);

impl Enqueue for PostgresEnqueue {
    fn enqueue<'a>(
        &'a self,
        transaction: &'a mut dyn SqlExecutor,
        message: &'a Outgoing,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            send::admit(message, self.0.config().max_body)?;
            if let Some(guard) = &message.guard {
                PostgresFencing(Arc::clone(&self.0)).check_in(transaction, guard).await?;
            }
            let sql = in_schema(include_str!("sql/put_in.sql"), &self.0.config().schema);
            transaction
                .execute(&sql, &params(message, self.0.config().notify_in_transactions))
                .await
                .map(drop)
        })
    }
}

/// A message as the statement takes it. What it has not is an empty text, or -1.
fn params(message: &Outgoing, notify: bool) -> [SqlValue; 11] {
    let envelope = &message.envelope;
    let (to_topic, name) = match &message.target {
        Target::Queue(name) => (0, name),
        Target::Topic(name) => (1, name),
    };
    let (due, kind) = match message.due {
        None => (0, 0),
        Some(Due::In(delay)) => (micros(delay), 1),
        Some(Due::At(moment)) => (moment_column(moment), 2),
    };
    [
        SqlValue::Text(name.as_str().to_owned()),
        SqlValue::Integer(to_topic),
        SqlValue::Text(envelope.id.to_string()),
        SqlValue::Text(envelope.message_type.to_string()),
        SqlValue::Text(headers_column(&envelope.headers).unwrap_or_default()),
        SqlValue::Integer(envelope.sent_at.as_micros()),
        SqlValue::Integer(envelope.time_to_live.map_or(-1, micros)),
        SqlValue::Integer(due),
        SqlValue::Integer(kind),
        SqlValue::Blob(envelope.body.to_vec()),
        SqlValue::Integer(i64::from(notify)),
    ]
}
