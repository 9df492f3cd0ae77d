//! The stores of this process, by name, and what a host holds of one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::lock::LockTable;
use super::queue::{Now, Queue};
use crate::clock::Clock;
use crate::contract::{Due, FenceGuard, OpenOptions, Outgoing, Placed};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Endpoint, Target};

/// The largest body that is taken: a bound at all, so that a mistake fails here as it would on a real store.
pub(super) const MAX_BODY: usize = 16 * 1024 * 1024;

static STORES: LazyLock<Mutex<HashMap<String, Arc<Store>>>> = LazyLock::new(Mutex::default);

pub(super) fn error(kind: ErrorKind, message: &'static str) -> Error {
    Error::new(kind, message).in_backend("memory")
}

/// One store, shared by everybody in the process who opened its name.
pub(super) struct Store {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) messages: Mutex<Messages>,
    pub(super) locks: Mutex<LockTable>,
    /// Told whenever a consumer has claimed, extended or settled something, or a term has begun.
    pub(super) worked: Arc<Notify>,
}

impl Store {
    pub(super) fn new(name: String, clock: Clock, worked: Arc<Notify>) -> Self {
        Store { name, clock, messages: Mutex::default(), locks: Mutex::default(), worked }
    }

    pub(super) fn now(&self) -> Now {
        Now { boot: self.clock.now(), wall: self.clock.wall() }
    }
}

/// What one host holds of a store: closing it closes this host's view, not the store.
#[derive(Clone)]
pub(super) struct Handle {
    store: Arc<Store>,
    closed: CancellationToken,
}

impl Handle {
    pub(super) fn open(config: &Config, options: &OpenOptions) -> Self {
        let store = Arc::clone(STORES.lock().entry(config.name.clone()).or_insert_with(|| {
            Arc::new(Store::new(config.name.clone(), options.clock.clone(), Arc::default()))
        }));
        Handle::of(store)
    }

    /// A view of this store.
    pub(super) fn of(store: Arc<Store>) -> Self {
        Handle { store, closed: CancellationToken::new() }
    }

    /// The store, unless this host has closed it.
    pub(super) fn store(&self) -> Result<&Store> {
        if self.closed.is_cancelled() {
            return Err(error(ErrorKind::Closed, "the store has been closed").with("store", &self.store.name));
        }
        Ok(&self.store)
    }

    pub(super) fn name(&self) -> &str {
        &self.store.name
    }

    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

/// All messages of a store.
#[derive(Default)]
pub(super) struct Messages {
    pub(super) queues: BTreeMap<Endpoint, Queue>,
    last_row: u64,
}

impl Messages {
    /// Creates an endpoint's queue where it is missing.
    pub(super) fn prepare(&mut self, endpoint: &Endpoint) -> &mut Queue {
        self.queues.entry(endpoint.clone()).or_default()
    }

    pub(super) fn queue(&mut self, endpoint: &Endpoint) -> Result<&mut Queue> {
        self.queues.get_mut(endpoint).ok_or_else(|| {
            error(ErrorKind::NotFound, "the endpoint has not been prepared").with("endpoint", endpoint)
        })
    }

    /// A number that is higher than every earlier one: a message's place in its queue.
    pub(super) fn next_row(&mut self) -> u64 {
        self.last_row += 1;
        self.last_row
    }

    /// Whether a message may be stored: what makes it fail alone.
    pub(super) fn admit(&self, outgoing: &Outgoing) -> Result<()> {
        outgoing.check_size(MAX_BODY).map_err(|error| error.in_backend("memory"))?;
        self.check_guard(outgoing.guard.as_ref())
    }

    /// Whether the fence of `guard`, if there is one, is in force.
    pub(super) fn check_guard(&self, guard: Option<&FenceGuard>) -> Result<()> {
        let Some(guard) = guard else { return Ok(()) };
        match self.queues.get(&*guard.endpoint) {
            Some(queue) => queue.check_fence(Some(guard.fence)),
            None => Err(error(ErrorKind::TermLost, "no fence is in force for the endpoint")
                .with("endpoint", &guard.endpoint)),
        }
    }

    /// Stores what has been admitted: a command in its queue, an event in each subscription of its topic.
    pub(super) fn store(&mut self, outgoing: Outgoing, now: Now) -> Placed {
        let row = self.next_row();
        let due = outgoing.due.map(|due| match due {
            Due::In(after) => now.wall + after,
            Due::At(moment) => moment,
        });
        if let Target::Queue(name) = &outgoing.target {
            // A producer may be there before the first consumer.
            self.prepare(&Endpoint::Queue(name.clone()));
        }
        for queue in self.readers(&outgoing.target) {
            queue.add(row, outgoing.envelope.clone(), due, now);
        }
        place(&outgoing.target, row)
    }

    /// Takes back a delayed message, every subscription's copy of it.
    pub(super) fn cancel(&mut self, placed: &Placed, now: Now) -> bool {
        let Some((target, row)) = find(placed) else { return false };
        let mut cancelled = false;
        for queue in self.readers(&target) {
            cancelled |= queue.cancel(row, now);
        }
        cancelled
    }

    fn readers<'a>(&'a mut self, target: &'a Target) -> impl Iterator<Item = &'a mut Queue> {
        self.queues
            .iter_mut()
            .filter(move |(endpoint, _)| endpoint.target() == *target)
            .map(|(_, queue)| queue)
    }
}

fn place(target: &Target, row: u64) -> Placed {
    match target {
        Target::Queue(name) => Placed::new(format!("queue:{name}:{row}")),
        Target::Topic(name) => Placed::new(format!("topic:{name}:{row}")),
    }
}

fn find(placed: &Placed) -> Option<(Target, u64)> {
    let mut parts = placed.as_str().splitn(3, ':');
    let (kind, name, row) = (parts.next()?, parts.next()?, parts.next()?);
    let name = crate::message::Name::new(name).ok()?;
    let target = match kind {
        "queue" => Target::Queue(name),
        "topic" => Target::Topic(name),
        _ => return None,
    };
    Some((target, row.parse().ok()?))
}
