//! Views for people.

use std::sync::Arc;

use rusqlite::Row;

use super::error::error;
use super::row::{RawEnvelope, nanos};
use super::transaction::{EndpointId, Tx};
use super::writer::Writer;
use crate::clock::Timestamp;
use crate::contract::{BoxFuture, DeadLetter, Depth, Dropped, Inspect, PutBack};
use crate::error::{ErrorKind, Result};
use crate::message::{Endpoint, MessageId};

pub(super) struct SqliteInspect(pub(super) Arc<Writer>);

impl Inspect for SqliteInspect {
    fn endpoints(&self) -> BoxFuture<'_, Result<Vec<Endpoint>>> {
        Box::pin(async move {
            let names: Vec<String> = self
                .0
                .read(|tx| {
                    tx.statement(include_str!("sql/endpoint_names.sql"))?
                        .query_map([], |row| row.get(0))?
                        .collect()
                })
                .await?;
            let mut endpoints =
                names.iter().map(|name| Endpoint::parse(name)).collect::<Result<Vec<_>>>().map_err(|e| {
                    error(ErrorKind::Corrupt, "the store has an endpoint without a valid name").caused_by(e)
                })?;
            endpoints.sort();
            Ok(endpoints)
        })
    }

    fn depth<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Depth>> {
        let endpoint = endpoint.clone();
        Box::pin(self.0.read(move |tx| match tx.find_endpoint(&endpoint)? {
            Some(id) => depth(tx, id),
            None => Ok(Depth::default()),
        }))
    }

    fn dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        after: Option<MessageId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>>> {
        Box::pin(async move {
            let name = endpoint.clone();
            let page = self.0.read(move |tx| match tx.find_endpoint(&name)? {
                Some(id) => page(tx, id, after, limit),
                None => Ok(Vec::new()),
            });
            Ok(page.await?.into_iter().map(|dead| dead.into_letter(endpoint)).collect())
        })
    }

    fn put_back<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, PutBack)>>> {
        let (name, ids) = (endpoint.clone(), ids.to_vec());
        Box::pin(self.0.write(move |tx| {
            let Some(endpoint) = tx.find_endpoint(&name)? else {
                return Ok(ids.iter().map(|id| (*id, PutBack::NotFound)).collect());
            };
            ids.iter().map(|id| Ok((*id, put_back(tx, endpoint, *id)?))).collect()
        }))
    }

    fn drop_dead_letters<'a>(
        &'a self,
        endpoint: &'a Endpoint,
        ids: &'a [MessageId],
    ) -> BoxFuture<'a, Result<Vec<(MessageId, Dropped)>>> {
        let (name, ids) = (endpoint.clone(), ids.to_vec());
        Box::pin(self.0.write(move |tx| {
            let Some(endpoint) = tx.find_endpoint(&name)? else {
                return Ok(ids.iter().map(|id| (*id, Dropped::NotFound)).collect());
            };
            ids.iter().map(|id| Ok((*id, drop_dead(tx, endpoint, *id)?))).collect()
        }))
    }
}

fn depth(tx: &Tx<'_>, endpoint: EndpointId) -> rusqlite::Result<Depth> {
    let params = (endpoint.first(), endpoint.last(), tx.boot, nanos(tx.now), endpoint.0, tx.wall.as_micros());
    tx.statement(include_str!("sql/depth.sql"))?.query_row(params, |row| {
        let count = |column| row.get::<_, i64>(column).map(|count| u64::try_from(count).unwrap_or(0));
        let (stored, claimed, delayed, due, dead) = (count(0)?, count(1)?, count(2)?, count(3)?, count(4)?);
        Ok(Depth::new(stored.saturating_sub(claimed) + due, claimed, delayed, dead))
    })
}

/// A dead letter as it lies in the store.
struct DeadRow {
    envelope: RawEnvelope,
    deliveries: u32,
    reason: String,
    error: Option<String>,
    dead_since: i64,
}

impl DeadRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(DeadRow {
            envelope: RawEnvelope::read(row, 0, 9)?,
            deliveries: row.get(5)?,
            reason: row.get(6)?,
            error: row.get(7)?,
            dead_since: row.get(8)?,
        })
    }

    fn into_letter(self, endpoint: &Endpoint) -> DeadLetter {
        DeadLetter::new(
            self.envelope.into_envelope(),
            endpoint.clone(),
            self.reason,
            self.error,
            Timestamp::from_micros(self.dead_since),
            self.deliveries,
        )
    }
}

/// A page of dead letters. An `after` that is gone was taken out with its page: begin anew.
fn page(
    tx: &Tx<'_>,
    endpoint: EndpointId,
    after: Option<MessageId>,
    limit: usize,
) -> rusqlite::Result<Vec<DeadRow>> {
    let position: Option<i64> = match after {
        Some(id) => tx
            .statement(include_str!("sql/dead_position.sql"))?
            .query_row((endpoint.0, id.as_uuid().as_bytes().as_slice()), |row| row.get(0))?,
        None => None,
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    tx.statement(include_str!("sql/dead_page.sql"))?
        .query_map((endpoint.0, position.unwrap_or(0), limit), DeadRow::read)?
        .collect()
}

/// All dead letters of that id: an event published twice under one id can have died twice.
fn deaths(tx: &Tx<'_>, endpoint: EndpointId, id: MessageId) -> rusqlite::Result<Vec<i64>> {
    tx.statement(include_str!("sql/dead_of_uuid.sql"))?
        .query_map((endpoint.0, id.as_uuid().as_bytes().as_slice()), |row| row.get(0))?
        .collect()
}

fn put_back(tx: &mut Tx<'_>, endpoint: EndpointId, id: MessageId) -> rusqlite::Result<PutBack> {
    let deaths = deaths(tx, endpoint, id)?;
    for death in &deaths {
        let message = endpoint.first() | tx.next_number()?;
        tx.execute(include_str!("sql/dead_to_ready.sql"), (death, message))?;
        tx.execute(include_str!("sql/dead_delete.sql"), [death])?;
    }
    if deaths.is_empty() {
        return Ok(PutBack::NotFound);
    }
    tx.touch(endpoint);
    Ok(PutBack::Done)
}

fn drop_dead(tx: &Tx<'_>, endpoint: EndpointId, id: MessageId) -> rusqlite::Result<Dropped> {
    let deaths = deaths(tx, endpoint, id)?;
    for death in &deaths {
        tx.execute(include_str!("sql/dead_delete.sql"), [death])?;
    }
    Ok(if deaths.is_empty() { Dropped::NotFound } else { Dropped::Done })
}
