//! How much waits where, asked now and then, and only if somebody wants to know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::super::board::Post;
use super::super::start::Common;
use super::DepthSeen;
use crate::clock::BootInstant;
use crate::contract::Depth;
use crate::message::Endpoint;
use crate::pump::PumpEnd;

/// How long an answer is good for: no store is asked more often.
const GOOD_FOR: Duration = Duration::from_secs(5);

/// What the stores have said last.
#[derive(Default)]
pub(crate) struct Depths {
    wanted: Notify,
    seen: Mutex<BTreeMap<(&'static str, Endpoint), Seen>>,
}

#[derive(Clone, Copy)]
struct Seen {
    depth: Depth,
    at: BootInstant,
    is_rough: bool,
}

impl Depths {
    /// Somebody wants to know. What is had is what was seen before.
    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }

    pub(super) fn seen(&self, post: &Post, now: BootInstant) -> Option<DepthSeen> {
        let seen = self.seen.lock().get(&(post.transport, post.endpoint.clone())).copied()?;
        Some(DepthSeen { depth: seen.depth, age: now.since(seen.at), is_rough: seen.is_rough })
    }

    /// Asks when somebody wants to know, until the host stops.
    pub(crate) async fn look(self: Arc<Self>, common: Arc<Common>) -> PumpEnd {
        let looking = async {
            loop {
                self.wanted.notified().await;
                for post in common.monitor.board.posts() {
                    self.ask(&common, &post).await;
                }
                tokio::time::sleep(GOOD_FOR).await;
            }
        };
        common.signals.stop.run_until_cancelled(looking).await;
        PumpEnd::Clean
    }

    /// A store that does not answer leaves what it said before, which is seen to grow old.
    async fn ask(&self, common: &Common, post: &Post) {
        let Ok(transport) = common.stores.transport(post.transport) else { return };
        let can = transport.capabilities();
        let Some(inspect) = can.inspect else { return };
        let at = common.clock.now();
        if let Ok(Ok(depth)) = tokio::time::timeout(GOOD_FOR, inspect.depth(&post.endpoint)).await {
            let seen = Seen { depth, at, is_rough: can.rough_depth };
            self.seen.lock().insert((post.transport, post.endpoint.clone()), seen);
        }
    }
}
