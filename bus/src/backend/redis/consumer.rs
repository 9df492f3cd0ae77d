//! A consumer of one endpoint.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::claim::{Claimed, Unanswered, request};
use super::client::Client;
use super::error::{Lost, closed};
use super::settle::{self, Claims};
use crate::clock::Clock;
use crate::contract::{BoxFuture, Consumer, ConsumerSpec, Settlement};
use crate::error::{Error, Result};
use crate::message::{Delivery, Receipt};
use crate::wake::jittered;

/// How long a waiting consumer sleeps, while hints come: ten of them look twice a second in all.
const WITH_HINTS: Duration = Duration::from_secs(5);
/// How long it sleeps while none come.
const WITHOUT_HINTS: Duration = Duration::from_millis(750);
/// How long the opening of a consumer waits until hints come.
const HINT: Duration = Duration::from_secs(1);
/// How much longer an answer is awaited when the consumer is told to stop.
const AFTER_STOP: Duration = Duration::from_secs(1);

pub(super) struct RedisConsumer {
    client: Arc<Client>,
    clock: Clock,
    spec: ConsumerSpec,
    claims: Claims,
    unanswered: Unanswered,
    hint: watch::Receiver<()>,
}

impl RedisConsumer {
    pub(super) async fn open(client: Arc<Client>, clock: Clock, spec: ConsumerSpec, claims: Claims) -> Self {
        let hint = client.hints.listen(claims.place.channel(), HINT).await;
        RedisConsumer { client, clock, spec, claims, unanswered: Unanswered::default(), hint }
    }

    /// Claims what there is. `None` if the consumer was told to stop before it could ask.
    async fn claim(&self, max: usize, stop: &CancellationToken) -> Result<Option<Claimed>> {
        // An outage is told once, by the call that it hits. After that it is waited out here, so that nobody's growing
        // pauses stand between the server's return and the next message.
        let connection = tokio::select! {
            () = stop.cancelled() => return Ok(None),
            connection = self.client.connection(None) => connection?,
        };
        let attempt = self.unanswered.next();
        let call = request(&self.spec, &self.claims.place, self.claims.term, max, &attempt);
        let at = self.clock.now();
        let asking = self.client.run_on(connection, self.client.deadline(), &call, Lost::Again);
        let Some(answer) = until_stopped(asking, stop).await else { return Ok(None) };
        let claim = attempt.claim;
        let claimed = Claimed::read(answer?, &self.spec.endpoint, self.claims.term, claim, at);
        attempt.answered();
        let claimed = claimed?;
        if claimed.made {
            tracing::warn!(endpoint = %self.spec.endpoint, "the endpoint was gone from the server, and has been made again");
        }
        Ok(Some(claimed))
    }

    /// How long to sleep when there was nothing.
    fn pause(&self, next_change: Option<Duration>) -> Duration {
        let poll = if self.client.hints.is_listening() { WITH_HINTS } else { WITHOUT_HINTS };
        // A waiting singleton keeps its row bound to its lock: it claims in time, be it in vain.
        let binding = self.claims.term.map(|term| term.lock_lease / 2);
        let pause = [next_change, binding].into_iter().flatten().fold(jittered(poll), Duration::min);
        pause.max(Duration::from_millis(1))
    }
}

/// The answer, awaited a little longer than until stop fires; `None` if that was not long enough.
async fn until_stopped<T>(asking: impl Future<Output = T>, stop: &CancellationToken) -> Option<T> {
    let too_late = async {
        stop.cancelled().await;
        tokio::time::sleep_until(Instant::now() + AFTER_STOP).await;
    };
    tokio::select! {
        biased;
        answer = asking => Some(answer),
        () = too_late => None,
    }
}

impl Consumer for RedisConsumer {
    fn receive<'a>(
        &'a self,
        max: usize,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let mut hint = self.hint.clone();
            loop {
                hint.mark_unchanged();
                if stop.is_cancelled() {
                    return Ok(Vec::new());
                }
                let Some(claimed) = self.claim(max, stop).await? else { return Ok(Vec::new()) };
                if !claimed.deliveries.is_empty() {
                    return Ok(claimed.deliveries);
                }
                let pause = self.pause(claimed.next_change);
                self.spec.pulse.beat(self.clock.now(), pause);
                tokio::select! {
                    () = stop.cancelled() => return Ok(Vec::new()),
                    () = self.client.closed().cancelled() => return Err(closed()),
                    Ok(()) = hint.changed() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
        })
    }

    fn extend<'a>(&'a self, receipts: &'a mut [Receipt], lease: Duration) -> BoxFuture<'a, Vec<Result<()>>> {
        Box::pin(settle::extend(&self.client, &self.claims, receipts, lease))
    }

    fn settle(&self, settlements: Vec<Settlement>) -> BoxFuture<'_, Vec<Result<()>>> {
        Box::pin(settle::settle(&self.client, &self.claims, settlements))
    }

    fn record_alone<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(settle::record_alone(&self.client, &self.claims, receipt))
    }
}
