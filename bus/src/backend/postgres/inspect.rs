//! Views for people.

use std::collections::HashSet;
use std::sync::Arc;

use uuid::Uuid;

use super::error::{Failure, error};
use super::row::RawEnvelope;
use super::statement::{self, Sql};
use super::store::Store;
use super::wake::Topic;
use crate::clock::Timestamp;
use crate::contract::{BoxFuture, DeadLetter, Depth, Dropped, Inspect, PutBack};
use crate::error::{ErrorKind, Result};
use crate::message::{Endpoint, MessageId};

pub(super) struct PostgresInspect(pub(super) Arc<Store>);

impl PostgresInspect {
    async fn names(&self) -> Result<Vec<String>, Failure> {
        let rows = self.0.ask(&self.0.durable, &statement::ENDPOINT_NAMES, &[]).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    async fn depth(&self, endpoint: &Endpoint) -> Result<Depth, Failure> {
        let rows = self.0.ask(&self.0.durable, &statement::DEPTH, &[&endpoint.to_string()]).await?;
        let Some(row) = rows.first() else { return Ok(Depth::default()) };
        let count = |column: usize| -> Result<u64, Failure> {
            Ok(u64::try_from(row.try_get::<_, i64>(column)?).unwrap_or(0))
        };
        Ok(Depth::new(count(0)?, count(1)?, count(2)?, count(3)?))
    }

    async fn page(
        &self,
        endpoint: &Endpoint,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, Failure> {
        let after = after.map(|id| *id.as_uuid());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self
            .0
            .ask(&self.0.durable, &statement::DEAD_PAGE, &[&endpoint.to_string(), &after, &limit])
            .await?;
        rows.iter().map(|row| read_letter(row, endpoint)).collect()
    }

    /// Takes dead letters out by a statement that answers the ids of those that were there; answers for each.
    async fn take_out(
        &self,
        sql: &'static Sql,
        endpoint: &Endpoint,
        ids: &[MessageId],
    ) -> Result<Vec<(MessageId, bool)>, Failure> {
        let uuids: Vec<Uuid> = ids.iter().map(|id| *id.as_uuid()).collect();
        let rows = self.0.ask(&self.0.durable, sql, &[&endpoint.to_string(), &uuids]).await?;
        let mut found: HashSet<Uuid> =
            rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<_, Failure>>()?;
        // The same id asked for twice is found once.
        Ok(ids.iter().map(|id| (*id, found.remove(id.as_uuid()))).collect())
    }
}

fn read_letter(row: &tokio_postgres::Row, endpoint: &Endpoint) -> Result<DeadLetter, Failure> {
    let deliveries: i32 = row.try_get(6)?;
    Ok(DeadLetter::new(
        RawEnvelope::read(row, 0)?.into_envelope(),
        endpoint.clone(),
        row.try_get(7)?,
        row.try_get(8)?,
        Timestamp::from_micros(row.try_get(9)?),
        u32::try_from(deliveries).unwrap_or(0),
    ))
}

impl Inspect for PostgresInspect {
    fn endpoints(&self) -> BoxFuture<'_, Result<Vec<Endpoint>>> {
        Box::pin(async move {
            let names = self.names().await.map_err(Failure::of_repeatable)?;
            let mut endpoints =
                names.iter().map(|name| Endpoint::parse(name)).collect::<Result<Vec<_>>>().map_err(|e| {
                    error(ErrorKind::Corrupt, "the store has an endpoint without a valid name").caused_by(e)
                })?;
            endpoints.sort();
            Ok(endpoints)
        })
    }

    fn depth<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Depth>> {
        Box::pin(async move { PostgresInspect::depth(self, endpoint).await.map_err(Failure::of_repeatable) })
    }

    fn dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        after: Option<MessageId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>>> {
        Box::pin(async move { self.page(endpoint, after, limit).await.map_err(Failure::of_repeatable) })
    }

    fn put_back<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, PutBack)>>> {
        Box::pin(async move {
            // Repeating it does nothing more.
            let taken = self.take_out(&statement::DEAD_PUT_BACK, endpoint, ids).await;
            self.0.wake.tell([Topic::Messages(endpoint.target())]);
            let answer = |(id, was_there)| (id, if was_there { PutBack::Done } else { PutBack::NotFound });
            Ok(taken.map_err(Failure::of_repeatable)?.into_iter().map(answer).collect())
        })
    }

    fn drop_dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, Dropped)>>> {
        Box::pin(async move {
            let taken = self.take_out(&statement::DEAD_DROP, endpoint, ids).await;
            let answer = |(id, was_there)| (id, if was_there { Dropped::Done } else { Dropped::NotFound });
            Ok(taken.map_err(Failure::of_repeatable)?.into_iter().map(answer).collect())
        })
    }
}
