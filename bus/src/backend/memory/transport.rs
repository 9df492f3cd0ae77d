//! Sending, claiming, settling.
//!
//! Every operation is done under the store's mutex within one poll, so that a dropped future has either done all of it
//! or nothing.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::fence::MemoryFencing;
use super::inspect::MemoryInspect;
use super::queue::{Now, Queue};
use super::readers::MemoryReaders;
use super::store::{Handle, MAX_BODY, Messages};
use crate::contract::{
    BoxFuture, Capabilities, Consumer, ConsumerSpec, Delay, Durability, FenceGuard, Guarantees, Outgoing,
    Placed, Reach, Sender, Settlement, Transport,
};
use crate::error::Result;
use crate::message::{Delivery, Endpoint, Receipt};

/// The longest sleep of a waiting consumer: due times follow the wall clock, which may be set in the meantime (tokio's
/// is not).
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

pub(super) struct MemoryTransport {
    handle: Handle,
}

impl MemoryTransport {
    pub(super) fn new(handle: Handle) -> Self {
        MemoryTransport { handle }
    }
}

impl Transport for MemoryTransport {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            delay: Some(Arc::new(MemoryDelay(self.handle.clone()))),
            fencing: Some(Arc::new(MemoryFencing(self.handle.clone()))),
            inspect: Some(Arc::new(MemoryInspect(self.handle.clone()))),
            readers: Some(Arc::new(MemoryReaders(self.handle.clone()))),
            strict_order: true,
            ..Capabilities::default()
        }
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(
            format!("memory://{}", self.handle.name()),
            Reach::Process,
            "the message is in this process's memory, and is gone when the process ends",
            MAX_BODY,
        )
        .durable(Durability::ProcessMemory)
    }

    fn prepare<'a>(&'a self, endpoints: &'a [Endpoint]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut messages = self.handle.store()?.messages.lock();
            for endpoint in endpoints {
                messages.prepare(endpoint);
            }
            Ok(())
        })
    }

    fn sender(&self) -> Arc<dyn Sender> {
        Arc::new(MemorySender(self.handle.clone()))
    }

    fn consumer(&self, spec: ConsumerSpec) -> BoxFuture<'_, Result<Arc<dyn Consumer>>> {
        Box::pin(async move {
            let changed = {
                let mut messages = self.handle.store()?.messages.lock();
                let queue = messages.queue(&spec.endpoint)?;
                queue.check_fence(spec.fence)?;
                Arc::clone(&queue.changed)
            };
            let handle = self.handle.clone();
            Ok(Arc::new(MemoryConsumer { handle, spec, changed }) as Arc<dyn Consumer>)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.handle.close() })
    }
}

struct MemorySender(Handle);

impl Sender for MemorySender {
    fn send(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Placed>>> {
        Box::pin(async move {
            let store = match self.0.store() {
                Ok(store) => store,
                Err(closed) => return batch.iter().map(|_| Err(closed.clone())).collect(),
            };
            let now = store.now();
            let mut messages = store.messages.lock();
            let mut send = |outgoing: Outgoing| {
                messages.admit(&outgoing)?;
                Ok(messages.store(outgoing, now))
            };
            batch.into_iter().map(&mut send).collect()
        })
    }
}

struct MemoryDelay(Handle);

impl Delay for MemoryDelay {
    fn cancel<'a>(
        &'a self,
        placed: &'a Placed,
        guard: Option<&'a FenceGuard>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let store = self.0.store()?;
            let now = store.now();
            let mut messages = store.messages.lock();
            messages.check_guard(guard)?;
            Ok(messages.cancel(placed, now))
        })
    }
}

struct MemoryConsumer {
    handle: Handle,
    spec: ConsumerSpec,
    changed: Arc<Notify>,
}

impl MemoryConsumer {
    /// Runs `work` on this consumer's messages, if its fence is in force.
    fn with_messages<T>(&self, work: impl FnOnce(&mut Messages, Now) -> Result<T>) -> Result<T> {
        let store = self.handle.store()?;
        let now = store.now();
        let mut messages = store.messages.lock();
        messages.queue(&self.spec.endpoint)?.check_fence(self.spec.fence)?;
        let done = work(&mut messages, now);
        store.worked.notify_waiters();
        done
    }

    fn with_queue<T>(&self, work: impl FnOnce(&mut Queue, Now) -> Result<T>) -> Result<T> {
        self.with_messages(|messages, now| work(messages.queue(&self.spec.endpoint)?, now))
    }

    /// Claims what there is, and says how long to wait where that is nothing.
    fn claim(&self, max: usize) -> Result<(Vec<Delivery>, Duration)> {
        let longest = if self.handle.store()?.clock.is_virtual() { Duration::MAX } else { LONGEST_SLEEP };
        self.with_queue(|queue, now| {
            let deliveries = queue.claim(max, &self.spec, now);
            let wait = queue.next_change(now).unwrap_or(longest).min(longest);
            // A waiting singleton keeps its row bound to its lock: it claims in time, be it in vain.
            Ok((deliveries, self.spec.lock_lease.map_or(wait, |lease| wait.min(lease / 2))))
        })
    }

    fn settle_one(&self, settlement: Settlement) -> Result<()> {
        let Settlement { receipt, verdict, outgoing } = settlement;
        self.with_messages(|messages, now| {
            messages.queue(&self.spec.endpoint)?.check_claim(&receipt)?;
            for message in &outgoing {
                messages.admit(message)?;
            }
            messages.queue(&self.spec.endpoint)?.settle(&receipt, verdict, now)?;
            for message in outgoing {
                messages.store(message, now);
            }
            Ok(())
        })
    }
}

impl Consumer for MemoryConsumer {
    fn receive<'a>(
        &'a self,
        max: usize,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<Delivery>>> {
        Box::pin(async move {
            loop {
                // Registered before looking, so that no change in between is missed.
                let mut changed = pin!(self.changed.notified());
                changed.as_mut().enable();
                if stop.is_cancelled() {
                    return Ok(Vec::new());
                }
                let (deliveries, wait) = self.claim(max)?;
                if !deliveries.is_empty() {
                    return Ok(deliveries);
                }
                self.spec.pulse.beat(self.handle.store()?.clock.now(), wait);
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = self.handle.closed() => {}
                    () = changed => {}
                    () = tokio::time::sleep(wait) => {}
                }
            }
        })
    }

    fn extend<'a>(&'a self, receipts: &'a mut [Receipt], lease: Duration) -> BoxFuture<'a, Vec<Result<()>>> {
        Box::pin(async move {
            let extend = |receipt: &Receipt| {
                self.with_queue(|queue, now| {
                    queue.keep_bound(&self.spec, now);
                    queue.extend(receipt, lease, now)
                })
            };
            receipts.iter().map(extend).collect()
        })
    }

    fn settle(&self, settlements: Vec<Settlement>) -> BoxFuture<'_, Vec<Result<()>>> {
        Box::pin(async move { settlements.into_iter().map(|one| self.settle_one(one)).collect() })
    }

    fn record_alone<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.with_queue(|queue, _| queue.record_alone(receipt)) })
    }
}
