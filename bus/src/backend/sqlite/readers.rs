//! Who reads which endpoint, what is swept away, and the end of subscriptions.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::OptionalExtension;

use super::error::error;
use super::transaction::{EndpointId, Tx};
use super::writer::Writer;
use crate::clock::Timestamp;
use crate::contract::{Attended, BoxFuture, DroppedSubscription, Readers, Reading};
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;

/// How many messages of a subscription one call looks at: the file is locked meanwhile.
const SWEPT_AT_ONCE: i64 = 10_000;

pub(super) struct SqliteReaders(pub(super) Arc<Writer>);

impl Readers for SqliteReaders {
    fn attend<'a>(&'a self, attended: &'a [Attended]) -> BoxFuture<'a, Result<()>> {
        let attended = attended.to_vec();
        Box::pin(self.0.write(move |tx| {
            for one in &attended {
                if let Some(id) = tx.find_endpoint(&one.endpoint)? {
                    let row = (id.0, tx.wall.as_micros(), one.retention.map(micros));
                    tx.execute(include_str!("sql/reader_put.sql"), row)?;
                }
            }
            Ok(())
        }))
    }

    fn readings(&self) -> BoxFuture<'_, Result<Vec<Reading>>> {
        Box::pin(async move {
            let rows = self.0.read(|tx| {
                rows(tx)?
                    .into_iter()
                    .map(|row| Ok((oldest(tx, row.id)?, tx.wall, row)))
                    .collect::<rusqlite::Result<Vec<_>>>()
            });
            let mut readings = Vec::new();
            for (oldest, now, row) in rows.await? {
                let ago = |at: i64| now.since(Timestamp::from_micros(at));
                let retention = row.retention.map(|micros| Duration::from_micros(micros.unsigned_abs()));
                readings.push(Reading::new(
                    named(&row.name)?,
                    oldest.map(ago),
                    row.read_at.map(ago),
                    retention,
                ));
            }
            readings.sort_by(|a, b| a.endpoint.cmp(&b.endpoint));
            Ok(readings)
        })
    }

    fn oldest<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<Duration>>> {
        let endpoint = endpoint.clone();
        Box::pin(self.0.read(move |tx| {
            let Some(id) = tx.find_endpoint(&endpoint)? else { return Ok(None) };
            Ok(oldest(tx, id)?.map(|at| tx.wall.since(Timestamp::from_micros(at))))
        }))
    }

    fn sweep(&self) -> BoxFuture<'_, Result<Vec<(Endpoint, u64)>>> {
        Box::pin(async move {
            // Mostly there is nothing to be swept: that is seen without writing.
            let old = self.0.read(|tx| {
                let mut found = Vec::new();
                for row in rows(tx)? {
                    let Some(before) =
                        row.retention.map(|retention| tx.wall.as_micros().saturating_sub(retention))
                    else {
                        continue;
                    };
                    if oldest(tx, row.id)?.is_some_and(|oldest| oldest < before) {
                        found.push((row, before));
                    }
                }
                Ok(found)
            });
            let mut swept = Vec::new();
            for (row, before) in old.await? {
                let id = row.id;
                let count = self.0.write(move |tx| {
                    tx.execute(include_str!("sql/sweep.sql"), (id.first(), id.last(), before, SWEPT_AT_ONCE))
                });
                match count.await? {
                    0 => {}
                    count => swept.push((named(&row.name)?, count as u64)),
                }
            }
            Ok(swept)
        })
    }

    fn drop_subscription<'a>(
        &'a self,
        subscription: &'a Endpoint,
        unattended: Duration,
    ) -> BoxFuture<'a, Result<DroppedSubscription>> {
        let subscription = subscription.clone();
        Box::pin(self.0.write(move |tx| drop_subscription(tx, &subscription, unattended)))
    }
}

/// An endpoint and its reader.
struct Row {
    id: EndpointId,
    name: String,
    read_at: Option<i64>,
    retention: Option<i64>,
}

fn rows(tx: &Tx<'_>) -> rusqlite::Result<Vec<Row>> {
    tx.statement(include_str!("sql/reader_list.sql"))?
        .query_map([], |row| {
            Ok(Row {
                id: EndpointId(row.get(0)?),
                name: row.get(1)?,
                read_at: row.get(2)?,
                retention: row.get(3)?,
            })
        })?
        .collect()
}

/// When the first available message was sent.
fn oldest(tx: &Tx<'_>, endpoint: EndpointId) -> rusqlite::Result<Option<i64>> {
    tx.statement(include_str!("sql/oldest_ready.sql"))?
        .query_row((endpoint.first(), endpoint.last()), |row| row.get(0))
        .optional()
}

fn drop_subscription(
    tx: &mut Tx<'_>,
    subscription: &Endpoint,
    unattended: Duration,
) -> rusqlite::Result<DroppedSubscription> {
    let found = tx.find_endpoint(subscription)?;
    let Some(id) = found.filter(|_| matches!(subscription, Endpoint::Subscription { .. })) else {
        return Ok(DroppedSubscription::NotFound);
    };
    let read_at: Option<i64> = tx
        .statement(include_str!("sql/reader_find.sql"))?
        .query_row([id.0], |row| row.get(0))
        .optional()?
        .flatten();
    let ago = read_at.map(|at| tx.wall.since(Timestamp::from_micros(at)));
    if let Some(ago) = ago.filter(|ago| *ago < unattended) {
        return Ok(DroppedSubscription::Attended(ago));
    }
    for sql in [include_str!("sql/drop_claims.sql"), include_str!("sql/drop_messages.sql")] {
        tx.execute(sql, (id.first(), id.last()))?;
    }
    for sql in [
        include_str!("sql/drop_delayed.sql"),
        include_str!("sql/drop_dead.sql"),
        include_str!("sql/drop_fence.sql"),
        include_str!("sql/drop_endpoint.sql"),
    ] {
        tx.execute(sql, [id.0])?;
    }
    tx.execute(include_str!("sql/reader_put.sql"), (id.0, None::<i64>, None::<i64>))?;
    // What is sent in the same transaction does not go there any more.
    tx.forget();
    Ok(DroppedSubscription::Done)
}

fn named(name: &str) -> Result<Endpoint> {
    Endpoint::parse(name)
        .map_err(|e| error(ErrorKind::Corrupt, "the store has an endpoint without a valid name").caused_by(e))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
