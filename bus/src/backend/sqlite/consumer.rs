//! A consumer of one endpoint.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::claim::{Claim, Claimed, Request};
use super::error::closed;
use super::fence::Term;
use super::settle::{self, Claims};
use super::transaction::EndpointId;
use super::wake::Topic;
use super::writer::Writer;
use crate::clock::{BootInstant, Clock};
use crate::contract::{BoxFuture, Consumer, ConsumerSpec, Settlement, fresh_claim, item_by_item};
use crate::error::Result;
use crate::message::{Delivery, Receipt, Verdict};
use crate::settings::Order;

/// How often a consumer begins at the queue's beginning again, so that it sees what came back there.
const LOOK_BACK: Duration = Duration::from_secs(1);
/// How long a waiting consumer sleeps at most: hints from other processes are hints.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
const SHORTEST_SLEEP: Duration = Duration::from_millis(250);

pub(super) struct SqliteConsumer {
    writer: Arc<Writer>,
    clock: Clock,
    spec: ConsumerSpec,
    claims: Claims,
    max_body: usize,
    position: Mutex<Position>,
}

/// Where the next claim begins. A hint that saves walking over what is in flight; never wrong for long.
#[derive(Debug)]
struct Position {
    after: i64,
    looked_back: Option<BootInstant>,
    /// Grows whenever `after` is set back, so that an answer that was on its way does not move it on again.
    set_back: u64,
}

impl SqliteConsumer {
    pub(super) fn new(
        writer: Arc<Writer>,
        clock: Clock,
        spec: ConsumerSpec,
        endpoint: EndpointId,
        max_body: usize,
    ) -> Self {
        let term = spec.fence.map(|fence| Term { fence, lock_lease: spec.lock_lease.unwrap_or(spec.lease) });
        let position = Mutex::new(Position { after: endpoint.first(), looked_back: None, set_back: 0 });
        let claims = Claims { endpoint, term, strict: spec.order == Order::Strict };
        SqliteConsumer { writer, clock, spec, claims, max_body, position }
    }

    /// The next claim, and how often the position had been set back when it was made.
    fn request(&self, max: usize) -> (Request, u64) {
        let endpoint = self.claims.endpoint;
        let now = self.clock.now();
        let mut position = self.position.lock();
        let look_back = position.looked_back.is_none_or(|at| now.since(at) >= LOOK_BACK);
        let strict = self.spec.order == Order::Strict;
        if look_back {
            position.looked_back = Some(now);
        }
        // In strict order the first message is the only one that may come, also when another host has put it back.
        if look_back || strict {
            position.after = endpoint.first();
        }
        let request = Request {
            endpoint,
            max: max.max(1),
            max_bytes: self.spec.max_bytes,
            lease: self.spec.lease,
            term: self.claims.term,
            strict,
            after: position.after,
            look_for_lapsed: look_back,
            token: fresh_claim(),
        };
        (request, position.set_back)
    }

    fn move_on(&self, claimed: &Claimed, set_back: u64) {
        let mut position = self.position.lock();
        if claimed.short {
            position.after = self.claims.endpoint.first();
        } else if position.set_back == set_back {
            position.after = position.after.max(claimed.up_to);
        }
        if claimed.rows.is_empty() {
            position.looked_back = None;
        }
    }

    /// Begins at the queue's beginning again: something came back there.
    fn set_back(&self) {
        let mut position = self.position.lock();
        position.after = self.claims.endpoint.first();
        position.set_back += 1;
    }

    /// Claims once, be it in vain; `None` if `stop` fired before the store was asked.
    async fn claim(&self, max: usize, stop: &CancellationToken) -> Result<Option<(Claimed, i64)>> {
        let (request, set_back) = self.request(max);
        let token = request.token;
        let (work, state, mut answer) = Claim::new(request);
        let submitted = tokio::select! {
            biased;
            submitted = self.writer.submit(work) => submitted,
            () = stop.cancelled() => return Ok(None),
        };
        submitted?;
        let answer = tokio::select! {
            biased;
            answer = &mut answer => answer,
            () = stop.cancelled() => {
                if state.withdraw() {
                    return Ok(None);
                }
                answer.await
            }
        };
        let claimed = self.writer.answered(answer).await?;
        self.move_on(&claimed, set_back);
        Ok(Some((claimed, token)))
    }

    /// How long to sleep if nobody wakes us: until something changes by itself, and with jitter, so that many
    /// processes do not all look at once.
    fn pause(&self, next_change: Option<Duration>) -> Duration {
        let spread = LONGEST_SLEEP - SHORTEST_SLEEP;
        let jitter = spread.mul_f64(f64::from(Uuid::new_v4().as_bytes()[0]) / 255.0);
        let poll = SHORTEST_SLEEP + jitter;
        // A waiting singleton keeps its row bound, which is due for it when half of the lock's lease has passed.
        let binding = self.claims.term.map(|term| term.lock_lease / 4);
        let pause = [next_change, binding].into_iter().flatten().fold(poll, Duration::min);
        pause.max(Duration::from_millis(1))
    }

    async fn settle_all(&self, settlements: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        let comes_back = settlements.iter().any(|one| !matches!(one.verdict, Verdict::Complete));
        let (claims, max_body) = (self.claims, self.max_body);
        let answers = self.writer.write(move |tx| settle::settle(tx, claims, &settlements, max_body)).await;
        if comes_back {
            self.set_back();
        }
        answers
    }
}

impl Consumer for SqliteConsumer {
    fn receive<'a>(
        &'a self,
        max: usize,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let mut hint = self.writer.wake().listen(Topic::Messages(self.claims.endpoint));
            loop {
                hint.mark_unchanged();
                if stop.is_cancelled() {
                    return Ok(Vec::new());
                }
                let Some((claimed, token)) = self.claim(max, stop).await? else { return Ok(Vec::new()) };
                if !claimed.rows.is_empty() {
                    let (endpoint, at) = (&self.spec.endpoint, claimed.at);
                    let deliveries = claimed.rows.into_iter();
                    return Ok(deliveries.map(|row| row.into_delivery(endpoint, token, at)).collect());
                }
                let pause = self.pause(claimed.next_change);
                self.spec.pulse.beat(self.clock.now(), pause);
                tokio::select! {
                    () = stop.cancelled() => return Ok(Vec::new()),
                    () = self.writer.closed().cancelled() => return Err(closed()),
                    Ok(()) = hint.changed() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            }
        })
    }

    fn extend<'a>(&'a self, receipts: &'a mut [Receipt], lease: Duration) -> BoxFuture<'a, Vec<Result<()>>> {
        Box::pin(async move {
            let (claims, copies) = (self.claims, receipts.to_vec());
            let answer = self.writer.write(move |tx| settle::extend(tx, claims, &copies, lease)).await;
            item_by_item(receipts.len(), answer)
        })
    }

    fn settle(&self, settlements: Vec<Settlement>) -> BoxFuture<'_, Vec<Result<()>>> {
        Box::pin(async move {
            let count = settlements.len();
            item_by_item(count, self.settle_all(settlements).await)
        })
    }

    fn record_alone<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (claims, receipt) = (self.claims, receipt.clone());
            self.writer.write(move |tx| settle::record_alone(tx, claims, &receipt)).await?
        })
    }
}
