//! What each processor of the host is at: which messages run, and what its health is judged by.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::wiring::Planned;
use crate::clock::BootInstant;
use crate::contract::{Fence, Pulse};
use crate::error::ErrorKind;
use crate::message::Endpoint;
use crate::pump::{Pump, PumpView, Unanswered};
use crate::singleton::{Lock, Standing};

/// Which processor: its transport and its endpoint.
type Key = (&'static str, Endpoint);

/// Shows what runs where.
#[derive(Clone, Default)]
pub(super) struct Board(Arc<Mutex<BTreeMap<Key, Post>>>);

/// One processor.
#[derive(Clone)]
pub(super) struct Post {
    pub(super) name: &'static str,
    pub(super) transport: &'static str,
    pub(super) endpoint: Endpoint,
    pub(super) is_singleton: bool,
    /// The opening of its consumer, as far as that has not been achieved.
    pub(super) opening: Unanswered,
    /// When one was last tried to be opened.
    pub(super) tried: Option<BootInstant>,
    /// Its pump, or the last one that it had.
    pub(super) pump: Option<PumpView>,
    /// Once it competes.
    pub(super) lock: Option<LockPost>,
}

/// What is known of a singleton's lock.
#[derive(Clone)]
pub(super) struct LockPost {
    pub(super) standing: watch::Receiver<Standing>,
    pub(super) pulse: Pulse,
    pub(super) since: BootInstant,
    /// That of the latest term.
    pub(super) fence: Option<Fence>,
}

impl Board {
    /// A board on which these stand, none of which does anything yet.
    pub(super) fn of<'p>(processors: impl IntoIterator<Item = &'p Planned>) -> Self {
        let posts = processors.into_iter().map(|planned| {
            let processor = &planned.processor;
            let post = Post {
                name: processor.name,
                transport: processor.transport,
                endpoint: processor.endpoint.clone(),
                is_singleton: planned.lock.is_some(),
                opening: Unanswered::default(),
                tried: None,
                pump: None,
                lock: None,
            };
            ((processor.transport, processor.endpoint.clone()), post)
        });
        Board(Arc::new(Mutex::new(posts.collect())))
    }

    fn at(&self, planned: &Planned, change: impl FnOnce(&mut Post)) {
        let processor = &planned.processor;
        if let Some(post) = self.0.lock().get_mut(&(processor.transport, processor.endpoint.clone())) {
            change(post);
        }
    }

    /// It has a pump, in the term of this fence.
    pub(super) fn pumps(&self, planned: &Planned, pump: &Pump, fence: Option<Fence>) {
        self.at(planned, |post| {
            post.opening = Unanswered::default();
            post.pump = Some(pump.view());
            if let Some(lock) = &mut post.lock {
                lock.fence = fence;
            }
        });
    }

    /// A consumer is being opened for it.
    pub(super) fn opens(&self, planned: &Planned, now: BootInstant) {
        self.at(planned, |post| {
            post.opening.since.get_or_insert(now);
            post.tried = Some(now);
        });
    }

    /// No consumer is wanted for it any more: its term is over.
    pub(super) fn opens_no_more(&self, planned: &Planned) {
        self.at(planned, |post| post.opening = Unanswered::default());
    }

    /// None could be.
    pub(super) fn cannot_open(&self, planned: &Planned, error: ErrorKind) {
        self.at(planned, |post| {
            post.opening.failures = post.opening.failures.saturating_add(1);
            post.opening.last_error = Some(error);
        });
    }

    /// It competes for a lock.
    pub(super) fn competes(&self, planned: &Planned, lock: &Lock, now: BootInstant) {
        let lock = LockPost { standing: lock.standing(), pulse: lock.pulse(), since: now, fence: None };
        self.at(planned, |post| post.lock = Some(lock));
    }

    /// All of them.
    pub(super) fn posts(&self) -> Vec<Post> {
        self.0.lock().values().cloned().collect()
    }

    /// What runs, for people: `queue: id, id`.
    pub(super) fn running(&self) -> Vec<String> {
        let running = |post: &Post| {
            let ids: Vec<_> = post.pump.as_ref()?.running().iter().map(ToString::to_string).collect();
            (!ids.is_empty()).then(|| format!("{}: {}", post.endpoint, ids.join(", ")))
        };
        self.0.lock().values().filter_map(running).collect()
    }
}
