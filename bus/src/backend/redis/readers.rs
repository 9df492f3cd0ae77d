//! Who reads which endpoint, what is swept away, and the end of subscriptions.

use std::sync::Arc;
use std::time::Duration;

use super::answer::{items, next, number, text};
use super::client::Client;
use super::error::{Lost, unexpected};
use super::registry;
use super::script::{ATTEND, CLEAR, DROP, Invocation, READING, SWEEP};
use crate::contract::{Attended, BoxFuture, DroppedSubscription, Readers, Reading};
use crate::error::Result;
use crate::message::Endpoint;

/// How many messages or dead letters one call of a script drops: it keeps everyone else waiting.
const AT_ONCE: usize = 1000;

pub(super) struct RedisReaders(pub(super) Arc<Client>);

impl RedisReaders {
    fn call(&self, script: &'static super::script::Script, endpoint: &Endpoint) -> Invocation {
        Invocation::new(script, vec![self.0.keys.place(endpoint).base])
    }

    /// What is known of an endpoint; `None` if it is listed and not there.
    async fn read(&self, endpoint: Endpoint) -> Result<Option<Reading>> {
        let times = items(self.0.run(&self.call(&READING, &endpoint), Lost::Again).await?)?;
        if times.len() == 0 {
            return Ok(None);
        }
        let mut times = times.map(number::<i64>);
        let mut time = || -> Result<Option<Duration>> {
            let micros = times.next().unwrap_or_else(|| Err(unexpected("too few times")))?;
            Ok(u64::try_from(micros).ok().map(Duration::from_micros))
        };
        let (oldest, attended, retention) = (time()?, time()?, time()?);
        Ok(Some(Reading::new(endpoint, oldest, attended, retention)))
    }

    async fn drop_one(&self, subscription: &Endpoint, unattended: Duration) -> Result<DroppedSubscription> {
        let place = self.0.keys.place(subscription);
        if place.subscription.is_none() {
            return Ok(DroppedSubscription::NotFound);
        }
        let call = Invocation::new(&DROP, place.keys()).with(unattended.as_micros()).with(place.name());
        let mut answer = items(self.0.run(&call, Lost::Again).await?)?;
        let dropped = match text(next(&mut answer)?)?.as_str() {
            "read" => {
                let ago = Duration::from_micros(number(next(&mut answer)?)?);
                return Ok(DroppedSubscription::Attended(ago));
            }
            "none" => DroppedSubscription::NotFound,
            "done" => DroppedSubscription::Done,
            _ => return Err(unexpected("no word of ours")),
        };
        let clear = self.call(&CLEAR, subscription).with(AT_ONCE);
        while number::<u8>(self.0.run(&clear, Lost::Again).await?)? == 0 {}
        Ok(dropped)
    }
}

impl Readers for RedisReaders {
    fn attend<'a>(&'a self, attended: &'a [Attended]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for one in attended {
                let retention = one.retention.map_or(String::new(), |time| time.as_micros().to_string());
                self.0.run(&self.call(&ATTEND, &one.endpoint).with(retention), Lost::Again).await?;
            }
            Ok(())
        })
    }

    fn readings(&self) -> BoxFuture<'_, Result<Vec<Reading>>> {
        Box::pin(async move {
            let mut readings = Vec::new();
            for endpoint in registry::endpoints(&self.0).await? {
                readings.extend(self.read(endpoint).await?);
            }
            Ok(readings)
        })
    }

    fn oldest<'a>(&'a self, endpoint: &'a Endpoint) -> BoxFuture<'a, Result<Option<Duration>>> {
        Box::pin(async move { Ok(self.read(endpoint.clone()).await?.and_then(|reading| reading.oldest)) })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<Vec<(Endpoint, u64)>>> {
        Box::pin(async move {
            let mut swept = Vec::new();
            let endpoints = registry::endpoints(&self.0).await?;
            for endpoint in endpoints.into_iter().filter(|one| matches!(one, Endpoint::Subscription { .. })) {
                let call = self.call(&SWEEP, &endpoint).with(AT_ONCE);
                let count: u64 = number(self.0.run(&call, Lost::Again).await?)?;
                if count > 0 {
                    swept.push((endpoint, count));
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
        Box::pin(self.drop_one(subscription, unattended))
    }
}
