//! Says every minute to each store which endpoints this host reads; has it drop what subscriptions have kept for too long;
//! and warns of subscriptions that nobody reads: each copy of an event that such a one gets stays for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::start::Common;
use super::wiring::Planned;
use crate::contract::{ATTENDED_EVERY, Attended, Readers, Reading, Transport};
use crate::error::Result;
use crate::message::{Endpoint, Name};
use crate::pump::PumpEnd;
use crate::sender::Bus;
use crate::wake::jittered;

/// How often it is looked for subscriptions that nobody reads.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// So many messages in one part of a sweep make another part worth it at once. Where events become too old all the time
/// there are always a few.
const WORTH_ANOTHER_PART: u64 = 100;
/// The pause between two parts: the store has others to serve.
const BETWEEN_PARTS: Duration = Duration::from_millis(100);
/// After so many parts the rest is left to the next minute.
const MOST_PARTS: usize = 300;

/// What is done about the endpoints of one transport.
pub(super) struct Attendant {
    common: Arc<Common>,
    bus: Bus,
    transport: String,
    attended: Vec<Attended>,
    /// Zero for never.
    warn_after: Duration,
}

impl Attendant {
    pub(super) fn new(
        common: &Arc<Common>,
        bus: &Bus,
        transport: &str,
        processors: &[Planned],
        warn_after: Duration,
    ) -> Self {
        let own = processors.iter().filter(|planned| planned.processor.transport == transport);
        let attended = own.map(|planned| {
            Attended::new(planned.processor.endpoint.clone()).retention(planned.settings.retention)
        });
        Attendant {
            common: Arc::clone(common),
            bus: bus.clone(),
            transport: transport.to_owned(),
            attended: attended.collect(),
            warn_after,
        }
    }

    /// Attends to them as soon as the store is there, until the host stops.
    pub(super) async fn run(self) -> PumpEnd {
        tokio::select! {
            () = self.common.signals.stop.cancelled() => {}
            () = self.attend() => {}
        }
        PumpEnd::Clean
    }

    async fn attend(&self) {
        let Ok(transport) = self.common.stores.transport_when_there(&self.transport).await else { return };
        let Some(readers) = transport.capabilities().readers else { return };
        let mut next_look = Instant::now();
        loop {
            if let Err(error) = self.attend_once(&**transport, &*readers, &mut next_look).await {
                // That the store is away is said by those who need it for more.
                tracing::debug!(target: "bus::host", transport = self.transport, error = ?error, "the store was not told which endpoints are read");
            }
            tokio::time::sleep(jittered(ATTENDED_EVERY)).await;
        }
    }

    async fn attend_once(
        &self,
        transport: &dyn Transport,
        readers: &dyn Readers,
        next_look: &mut Instant,
    ) -> Result<()> {
        if !self.attended.is_empty() {
            readers.attend(&self.attended).await?;
        }
        let mut swept = BTreeMap::new();
        let sweeping = self.sweep(readers, &mut swept).await;
        self.tell_swept(&swept);
        sweeping?;
        if !self.warn_after.is_zero() && Instant::now() >= *next_look {
            *next_look = Instant::now() + LOOK_EVERY;
            self.look(transport, readers).await?;
        }
        Ok(())
    }

    /// Sweeps part after part, as long as there is much, and for less than a minute: everybody is to go on seeing that
    /// somebody reads.
    async fn sweep(&self, readers: &dyn Readers, all: &mut BTreeMap<Endpoint, u64>) -> Result<()> {
        let begun = Instant::now();
        for _ in 0..MOST_PARTS {
            let part = readers.sweep().await?;
            let messages: u64 = part.iter().map(|(_, messages)| messages).sum();
            for (subscription, messages) in part {
                *all.entry(subscription).or_default() += messages;
            }
            if messages < WORTH_ANOTHER_PART || begun.elapsed() > ATTENDED_EVERY / 2 {
                break;
            }
            tokio::time::sleep(BETWEEN_PARTS).await;
        }
        Ok(())
    }

    fn tell_swept(&self, swept: &BTreeMap<Endpoint, u64>) {
        for (subscription, messages) in swept {
            tracing::warn!(target: "bus::host", event = "subscription.swept", transport = self.transport, %subscription, messages, "dropped what the subscription has kept for longer than its retention");
        }
    }

    async fn look(&self, transport: &dyn Transport, readers: &dyn Readers) -> Result<()> {
        let topics = self.topics();
        let inspect = transport.capabilities().inspect;
        for reading in readers.readings().await? {
            let Some(unread) = reading.unread().filter(|unread| *unread >= self.warn_after) else { continue };
            if !is_of(&reading, &topics) {
                continue;
            }
            let ready = match &inspect {
                Some(inspect) => inspect.depth(&reading.endpoint).await?.ready,
                None => 0,
            };
            let (subscription, oldest) = (&reading.endpoint, reading.oldest);
            tracing::warn!(target: "bus::host", event = "subscription.unread", transport = self.transport, %subscription, ready, ?unread, ?oldest, "nobody reads this subscription, and what is published collects there: start a host that reads it, give it a retention, or drop it (bus subscription drop {subscription})");
        }
        Ok(())
    }

    /// The topics that this host publishes or consumes.
    fn topics(&self) -> BTreeSet<Name> {
        let consumed = self.attended.iter().filter_map(|one| match &one.endpoint {
            Endpoint::Subscription { topic, .. } => Some(topic.clone()),
            Endpoint::Queue(_) => None,
        });
        consumed.chain(self.bus.published(&self.transport)).collect()
    }
}

fn is_of(reading: &Reading, topics: &BTreeSet<Name>) -> bool {
    match &reading.endpoint {
        Endpoint::Subscription { topic, .. } => topics.contains(topic),
        Endpoint::Queue(_) => false,
    }
}
