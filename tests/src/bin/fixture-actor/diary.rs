//! Writes the pump's documented events into the journal, and everything else for people to standard error.

use std::fmt::{self, Write};

use bus_tests::journal::{Entry, Journal};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt as for_people};

/// Sets up the subscriber of this process.
pub(crate) fn listen(journal: Journal) {
    let text = for_people::layer().with_writer(std::io::stderr).with_ansi(false);
    let filter = EnvFilter::try_from_env("BUS_TEST_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::registry().with(Diary(journal)).with(text.with_filter(filter)).init();
}

struct Diary(Journal);

impl<S: Subscriber> Layer<S> for Diary {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut found = Found::default();
        event.record(&mut found);
        let target = event.metadata().target();
        if let Some(name) = found.event {
            let mut entry = Entry::now(name);
            (entry.id, entry.fence, entry.say) = (found.message_id, found.fence, found.more);
            self.0.write(&entry);
        } else if target == "bus::host" && found.message.contains(" <- ") {
            // One line for each processor, when all has been opened.
            self.0.write(&Entry::now("started"));
        } else if found.message == "asked to stop: draining" {
            self.0.write(&Entry::now("stopping"));
        }
    }
}

/// The fields of an event.
#[derive(Default)]
struct Found {
    event: Option<String>,
    message: String,
    message_id: Option<String>,
    /// A verdict, or where it is listened.
    more: Option<String>,
    fence: Option<u64>,
}

impl Visit for Found {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{value:?}");
        match field.name() {
            "message" => self.message = text,
            "message_id" => self.message_id = Some(text),
            "verdict" | "address" => self.more = Some(text),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "event" => self.event = Some(value.to_owned()),
            "verdict" => self.more = Some(value.to_owned()),
            _ => {}
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "fence" {
            self.fence = Some(value);
        }
    }
}
