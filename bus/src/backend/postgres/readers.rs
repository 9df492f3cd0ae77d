//! Who reads which endpoint, what is swept away, and the end of subscriptions.

use std::sync::Arc;
use std::time::Duration;

use super::error::{Failure, error};
use super::pool::within;
use super::session::Session;
use super::statement;
use super::store::Store;
use crate::contract::{Attended, BoxFuture, DroppedSubscription, Readers, Reading};
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;

/// How many messages of a subscription one statement looks at or drops: each has a time limit.
const AT_ONCE: i64 = 10_000;
/// How long a sender's transaction may go on that found a subscription which has been dropped since.
const LATEST_SENDER: Duration = Duration::from_secs(3600);

pub(super) struct PostgresReaders(pub(super) Arc<Store>);

impl PostgresReaders {
    async fn put(&self, attended: &[Attended]) -> Result<(), Failure> {
        let names: Vec<String> = attended.iter().map(|one| one.endpoint.to_string()).collect();
        let retentions: Vec<Option<i64>> = attended.iter().map(|one| one.retention.map(micros)).collect();
        self.0.ask(&self.0.relaxed, &statement::READER_PUT, &[&names, &retentions]).await.map(drop)
    }

    async fn list(&self) -> Result<Vec<Reading>, Failure> {
        let rows = self.0.ask(&self.0.durable, &statement::READER_LIST, &[]).await?;
        let mut readings = Vec::with_capacity(rows.len());
        for row in &rows {
            let time = |column: usize| Ok::<_, Failure>(row.try_get::<_, Option<i64>>(column)?.map(duration));
            readings.push(Reading::new(named(row.try_get(0)?)?, time(1)?, time(2)?, time(3)?));
        }
        readings.sort_by(|a, b| a.endpoint.cmp(&b.endpoint));
        Ok(readings)
    }

    async fn sweep_once(&self) -> Result<Vec<(Endpoint, u64)>, Failure> {
        self.empty_dropped().await?;
        let rows = self.0.ask(&self.0.relaxed, &statement::SWEEP, &[&AT_ONCE]).await?;
        rows.iter()
            .map(|row| Ok((named(row.try_get(0)?)?, row.try_get::<_, i64>(1)?.unsigned_abs())))
            .collect()
    }

    /// Drops a subscription, which is decided once and for all, and then what is in it: however much that is, no
    /// statement takes long. Whoever dies over it leaves the rest to the next sweep.
    async fn drop_one(&self, name: &str, unattended: i64) -> Result<DroppedSubscription, Failure> {
        let mut session = self.0.durable.borrow().await?;
        let decided = within(self.0.config().deadline, decide(&mut session, name, unattended)).await;
        let decided = self.0.heeded(session.end(decided)).await?;
        self.0.forget_endpoints();
        if decided == DroppedSubscription::Done {
            while self.empty_dropped().await? > 0 {}
        }
        Ok(decided)
    }

    /// Drops a part of what is left of dropped subscriptions; answers how much.
    async fn empty_dropped(&self) -> Result<i64, Failure> {
        let late = micros(LATEST_SENDER);
        let rows = self.0.ask(&self.0.relaxed, &statement::DROPPED_EMPTY, &[&AT_ONCE, &late]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0))
    }
}

/// Drops a subscription, all but what is in it, unless it is attended to.
async fn decide(session: &mut Session, name: &str, unattended: i64) -> Result<DroppedSubscription, Failure> {
    session.begin().await?;
    let decided = async {
        // Only a statement that begins afterwards is sure to see what whoever had it locked has said.
        session.query(&statement::SUBSCRIPTION_LOCK, &[&name]).await?;
        let rows = session.query(&statement::SUBSCRIPTION_DROP, &[&name, &unattended]).await?;
        let Some(row) = rows.first() else { return Ok(DroppedSubscription::NotFound) };
        Ok(match (row.try_get(0)?, row.try_get(1)?) {
            (_, true) => DroppedSubscription::Done,
            (Some(attended), false) => DroppedSubscription::Attended(duration(attended)),
            // Not attended to and still there: it was not locked, because it has been made since.
            (None, false) => DroppedSubscription::NotFound,
        })
    };
    let decided = decided.await;
    session.end_transaction(decided).await
}

impl Readers for PostgresReaders {
    fn attend<'a>(&'a self, attended: &'a [Attended]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.put(attended).await.map_err(Failure::of_repeatable) })
    }

    fn readings(&self) -> BoxFuture<'_, Result<Vec<Reading>>> {
        Box::pin(async move { self.list().await.map_err(Failure::of_repeatable) })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<Vec<(Endpoint, u64)>>> {
        Box::pin(async move { self.sweep_once().await.map_err(Failure::of_repeatable) })
    }

    fn drop_subscription<'a>(
        &'a self,
        subscription: &'a Endpoint,
        unattended: Duration,
    ) -> BoxFuture<'a, Result<DroppedSubscription>> {
        Box::pin(async move {
            self.drop_one(&subscription.to_string(), micros(unattended)).await.map_err(Failure::of_repeatable)
        })
    }
}

fn named(name: &str) -> Result<Endpoint> {
    Endpoint::parse(name)
        .map_err(|e| error(ErrorKind::Corrupt, "the store has an endpoint without a valid name").caused_by(e))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// A sender's clock may be ahead.
fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
