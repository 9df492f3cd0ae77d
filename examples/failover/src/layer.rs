//! Turns what the bus says about its singletons and its settling, through `tracing`, into lines of the history.
//!
//! The targets, and the fields `event`, `message_id` and `fence`, are documented API of the bus.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use tracing::field::{Field, Visit};
use tracing::{Event as TraceEvent, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::history::{Event, History, Kind};

const TARGETS: [&str; 2] = ["bus::pump", "bus::singleton"];

/// Writes the events of the bus to a history.
#[derive(Debug)]
pub struct HistoryLayer(Arc<History>);

impl HistoryLayer {
    /// A layer that writes to `history`.
    pub fn new(history: Arc<History>) -> Self {
        Self(history)
    }
}

impl<S: Subscriber> Layer<S> for HistoryLayer {
    fn on_event(&self, event: &TraceEvent<'_>, _: Context<'_, S>) {
        if !TARGETS.contains(&event.metadata().target()) {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        if let Some(event) = fields.event() {
            self.0.write(&event);
        }
    }
}

/// The fields of one event that matter here.
#[derive(Debug, Default)]
struct Fields {
    event: String,
    message_id: Option<String>,
    fence: Option<u64>,
}

impl Fields {
    fn event(self) -> Option<Event> {
        let name: StrDeserializer<'_, Error> = self.event.as_str().into_deserializer();
        let kind = Kind::deserialize(name).ok().filter(|kind| is_told_by_the_bus(*kind))?;
        Some(Event { m: self.message_id, fence: self.fence, ..Event::now(kind) })
    }
}

/// Runs, too, end within the bus; but the handler knows better when.
fn is_told_by_the_bus(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::SettleOk | Kind::SettleRefused | Kind::LockAcquired | Kind::LockLost | Kind::LockReleased
    )
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "fence" {
            self.fence = Some(value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "event" => value.clone_into(&mut self.event),
            "message_id" => self.message_id = Some(value.to_owned()),
            "fence" => self.fence = value.parse().ok(),
            _ => {}
        }
    }

    /// What is recorded by its `Display` comes this way too.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use tracing::{debug, info};
    use tracing_subscriber::prelude::*;

    use super::*;
    use crate::history::file_of;

    #[test]
    fn the_events_of_the_bus_become_lines() {
        let directory = tempfile::tempdir().unwrap();
        let history = Arc::new(History::open(directory.path(), "host").unwrap());
        let subscriber = tracing_subscriber::registry().with(HistoryLayer::new(history));
        tracing::subscriber::with_default(subscriber, || {
            let id = uuid::Uuid::nil();
            info!(target: "bus::singleton", event = "lock.acquired", fence = 7_u64, "won the lock");
            debug!(target: "bus::pump", event = "settle.ok", message_id = %id, fence = %7, "settled");
            info!(target: "bus::pump", event = "something.else", message_id = %id, "ignored");
            info!(target: "elsewhere", event = "settle.ok", message_id = %id, "ignored");
            info!(target: "bus::pump", "ignored");
        });
        let text = std::fs::read_to_string(file_of(directory.path(), "host", std::process::id())).unwrap();
        let events: Vec<Event> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let told: Vec<_> = events.iter().map(|event| (event.e, event.m.as_deref(), event.fence)).collect();
        let id = "00000000-0000-0000-0000-000000000000";
        assert_eq!(told, [(Kind::LockAcquired, None, Some(7)), (Kind::SettleOk, Some(id), Some(7))]);
    }
}
