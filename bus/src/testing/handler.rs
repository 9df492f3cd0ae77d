//! Around each run and each handler: notes what runs, and brings about the faults that strike there.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::faults::{Kind, Point};
use super::life::Life;
use super::world::World;
use crate::message::{Delivery, Verdict};
use crate::pipeline::Next;
use crate::processor::Handler;

/// Notes a run, with all of its middleware, from its beginning to its end.
pub(super) async fn observed(life: Arc<Life>, delivery: Delivery, next: Next) -> Verdict {
    let _run = life.begin_run(&delivery);
    life.living(next.run(delivery)).await
}

/// A handler with its points of failure.
pub(super) struct ObservedHandler {
    pub(super) inner: Arc<dyn Handler>,
    pub(super) transport: &'static str,
    pub(super) world: Arc<World>,
    pub(super) life: Arc<Life>,
}

impl Handler for ObservedHandler {
    fn call(&self, delivery: Delivery) -> BoxFuture<'static, Verdict> {
        let (inner, transport) = (Arc::clone(&self.inner), self.transport);
        let (world, life) = (Arc::clone(&self.world), Arc::clone(&self.life));
        Box::pin(async move {
            let endpoint = Arc::clone(&delivery.endpoint);
            if world.faults.strikes(Kind::Crash(Point::BeforeHandler), &endpoint) {
                return life.crash_here().await;
            }
            if world.faults.strikes(Kind::ExpireClaim, &endpoint)
                && let Some(store) = world.store(transport)
            {
                // That the claim is gone already is what was wanted.
                let _ = store.expire_claim(&endpoint, &delivery.receipt);
            }
            let verdict = inner.call(delivery).await;
            if world.faults.strikes(Kind::Crash(Point::AfterHandler), &endpoint) {
                return life.crash_here().await;
            }
            verdict
        })
    }
}
