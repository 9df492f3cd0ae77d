//! What is logged while a test runs, on its own thread.

use std::fmt::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Hears every event, until it is dropped.
pub(crate) struct Heard {
    lines: Arc<Mutex<Vec<String>>>,
    _listening: DefaultGuard,
}

impl Heard {
    /// Listens from now on.
    pub(crate) fn listen() -> Heard {
        let lines = Arc::default();
        let listening = tracing_subscriber::registry().with(Lines(Arc::clone(&lines)));
        Heard { lines, _listening: tracing::subscriber::set_default(listening) }
    }

    /// The events of this name, each on a line with all of its fields.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let wanted = format!("event={name:?} ");
        self.lines.lock().iter().filter(|line| line.contains(&wanted)).cloned().collect()
    }

    /// All that was logged.
    pub(crate) fn all(&self) -> String {
        self.lines.lock().join("\n")
    }
}

struct Lines(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line(format!("{} ", event.metadata().level()));
        event.record(&mut line);
        self.0.lock().push(line.0);
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a `String` cannot fail.
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}
