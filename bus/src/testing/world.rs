//! What the incarnations of a test host share, and what its test looks at: stores, time, and what has happened.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::faults::Plan;
use super::history::{self, DeadMessage, History};
use super::life::Life;
use super::transport::ObservedTransport;
use crate::backend::memory::Control;
use crate::clock::{Clock, Timestamp};
use crate::contract::Transport;
use crate::host::config::DEFAULT_TRANSPORT;
use crate::message::Message;
use crate::processor::Processor;

pub(super) struct World {
    pub(super) clock: Clock,
    began: (Instant, Timestamp),
    /// One for each transport.
    stores: BTreeMap<String, Control>,
    /// Told whenever something has happened that may have been the last thing.
    pub(super) activity: Arc<Notify>,
    pub(super) history: History,
    pub(super) faults: Plan,
}

impl World {
    /// An empty one, with a store for each of these transports and for the default one.
    pub(super) fn new(transports: impl IntoIterator<Item = String>) -> Arc<Self> {
        let (clock, activity) = (Clock::tokio(), Arc::<Notify>::default());
        let names = transports.into_iter().chain([DEFAULT_TRANSPORT.to_owned()]);
        let store = |name: &str| Control::new(name, clock.clone(), Arc::clone(&activity));
        let stores = names.map(|name| (name.clone(), store(&name))).collect();
        let began = (Instant::now(), clock.wall());
        let (history, faults) = (History::default(), Plan::default());
        Arc::new(World { clock, began, stores, activity, history, faults })
    }

    /// The virtual time since it began.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.0.elapsed()
    }

    /// The store of a transport.
    pub(super) fn store(&self, transport: &str) -> Option<&Control> {
        self.stores.get(transport)
    }

    /// The store of the default transport, which has the locks too.
    pub(super) fn default_store(&self) -> &Control {
        &self.stores[DEFAULT_TRANSPORT]
    }

    /// Whether time has to pass before a processor has anything to do: nothing that it reads is available or claimed, and
    /// if it is a singleton, its lock is held, be it by somebody else.
    pub(super) fn is_at_rest(&self, processor: &Processor) -> bool {
        let Processor { endpoint, transport, settings, singleton, .. } = processor;
        let Some(store) = self.store(transport) else { return true };
        let locked =
            || store.lock_of(endpoint).is_some_and(|(_, lock)| self.default_store().is_locked(&lock));
        store.is_at_rest(endpoint, settings.order) && (!singleton || locked())
    }

    /// The transports as one process has them.
    pub(super) fn transports(self: &Arc<Self>, life: &Arc<Life>) -> BTreeMap<String, Arc<dyn Transport>> {
        let observed = |(name, store): (&String, &Control)| {
            let transport =
                ObservedTransport::new(name, store.transport(), Arc::clone(self), Arc::clone(life));
            (name.clone(), Arc::new(transport) as Arc<dyn Transport>)
        };
        self.stores.iter().map(observed).collect()
    }

    /// The dead letters of a type.
    pub(super) fn dead<M: Message>(&self) -> Vec<DeadMessage<M>> {
        let letters = self.store(M::TRANSPORT).map(Control::dead_letters).unwrap_or_default();
        history::dead(M::TRANSPORT, letters, |letter| letter.dead_since.since(self.began.1))
    }
}
