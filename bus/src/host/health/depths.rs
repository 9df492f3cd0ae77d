//! How much waits where, asked now and then, and only if somebody wants to know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
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
    oldest: Option<Duration>,
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
        let Seen { depth, oldest, at, is_rough } = seen;
        Some(DepthSeen { depth, age: now.since(at), is_rough, oldest })
    }

    /// Asks when somebody wants to know, until the host stops.
    pub(crate) async fn look(self: Arc<Self>, common: Arc<Common>) -> PumpEnd {
        let looking = async {
            loop {
                self.wanted.notified().await;
                let mut of_transports: BTreeMap<_, Vec<Post>> = BTreeMap::new();
                for post in common.monitor.board.posts() {
                    of_transports.entry(post.transport).or_default().push(post);
                }
                // One that is dead does not keep the others from being asked.
                let asking = of_transports.into_values().map(|posts| self.ask_all(&common, posts));
                join_all(asking).await;
                tokio::time::sleep(GOOD_FOR).await;
            }
        };
        common.signals.stop.run_until_cancelled(looking).await;
        PumpEnd::Clean
    }

    /// Asks one transport's store about these, as long as it answers.
    async fn ask_all(&self, common: &Common, posts: Vec<Post>) {
        for post in posts {
            if tokio::time::timeout(GOOD_FOR, self.ask(common, &post)).await.is_err() {
                return;
            }
            // May take longer where much waits; the depths do not wait for it.
            let _ = tokio::time::timeout(GOOD_FOR, self.ask_for_the_oldest(common, &post)).await;
        }
    }

    /// A store that does not answer leaves what it said before, which is seen to grow old.
    async fn ask(&self, common: &Common, post: &Post) {
        let Ok(transport) = common.stores.transport(post.transport) else { return };
        let can = transport.capabilities();
        let Some(inspect) = can.inspect else { return };
        let at = common.clock.now();
        let Ok(depth) = inspect.depth(&post.endpoint).await else { return };
        let seen = Seen { depth, oldest: None, at, is_rough: can.rough_depth };
        self.seen.lock().insert((post.transport, post.endpoint.clone()), seen);
    }

    /// How old the oldest message is, of those that wait.
    async fn ask_for_the_oldest(&self, common: &Common, post: &Post) {
        let key = (post.transport, post.endpoint.clone());
        let does_one_wait = self.seen.lock().get(&key).is_some_and(|seen| seen.depth.ready > 0);
        let Ok(transport) = common.stores.transport(post.transport) else { return };
        let Some(readers) = transport.capabilities().readers.filter(|_| does_one_wait) else { return };
        let oldest = readers.oldest(&post.endpoint).await.unwrap_or_default();
        if let Some(seen) = self.seen.lock().get_mut(&key) {
            seen.oldest = oldest;
        }
    }
}
