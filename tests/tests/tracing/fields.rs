//! The fields of spans, as a subscriber sees them that knows nothing of OpenTelemetry; and what is not among them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bus::prelude::*;
use bus::testing::Durations;
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use super::handlers::{SECRET, Seen, Todo, Work};
use super::host;

type Fields = BTreeMap<String, String>;

/// Keeps each span's fields, and each event's.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Vec<Kept>>>);

/// A span's id and name, and its fields.
type Kept = (u64, &'static str, Fields);

impl Keeper {
    fn start() -> (Self, DefaultGuard) {
        let keeper = Keeper::default();
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(keeper.clone()));
        (keeper, guard)
    }

    fn named(&self, name: &str) -> Vec<Fields> {
        self.0.lock().iter().filter(|(_, span, _)| *span == name).map(|(.., fields)| fields.clone()).collect()
    }
}

struct Into<'f>(&'f mut Fields);

impl Visit for Into<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> tracing_subscriber::Layer<S> for Keeper {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Into(&mut fields));
        self.0.lock().push((id.into_u64(), attributes.metadata().name(), fields));
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, _: Context<'_, S>) {
        // An id is used again when its span has ended: the last one is meant.
        if let Some((.., fields)) = self.0.lock().iter_mut().rev().find(|(span, ..)| *span == id.into_u64()) {
            record.record(&mut Into(fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::new();
        event.record(&mut Into(&mut fields));
        self.0.lock().push((0, "(event)", fields));
    }
}

fn fields<const N: usize>(pairs: [(&str, &str); N]) -> Fields {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// All fields, without those of the outcome: named by the conventions, where these have a name.
#[bus::test]
async fn spans_have_the_fields_of_the_messaging_conventions() {
    let (keeper, _guard) = Keeper::start();
    let host = host(&Seen::default()).await;
    let work = host.bus().send(Work::to(Todo::Publish)).await.expect("sent");
    host.settled().await;
    let mut sends = keeper.named("send");
    let happened = sends[1].remove("messaging.message.id").expect("an id");
    assert_eq!(
        sends[0],
        fields([
            ("otel.name", "send work"),
            ("otel.kind", "producer"),
            ("messaging.system", "bus"),
            ("messaging.operation.name", "send"),
            ("messaging.operation.type", "send"),
            ("messaging.destination.name", "work"),
            ("messaging.message.id", &work.id().to_string()),
            ("messaging.message.body.size", "46"),
            ("bus.transport", "default"),
            ("bus.message_type", "Work"),
        ])
    );
    assert_eq!(
        sends[1],
        fields([
            ("otel.name", "publish happened"),
            ("otel.kind", "producer"),
            ("messaging.system", "bus"),
            ("messaging.operation.name", "publish"),
            ("messaging.operation.type", "send"),
            ("messaging.destination.name", "happened"),
            ("messaging.message.body.size", "4"),
            ("bus.transport", "default"),
            ("bus.message_type", "Happened"),
        ])
    );
    let mut runs = keeper.named("process");
    runs.sort_by_key(|fields| fields["otel.name"].clone());
    assert!(runs.iter_mut().all(|run| run.remove("trace_id").is_some_and(|id| id.len() == 32)), "{runs:?}");
    assert_eq!(
        runs[0],
        fields([
            ("otel.name", "process happened/one"),
            ("otel.kind", "consumer"),
            ("messaging.system", "bus"),
            ("messaging.operation.name", "process"),
            ("messaging.operation.type", "process"),
            ("messaging.destination.name", "happened"),
            ("messaging.destination.subscription.name", "one"),
            ("messaging.message.id", &happened),
            ("messaging.message.body.size", "4"),
            ("bus.message_type", "Happened"),
            ("bus.delivery_count", "1"),
            ("bus.failures", "0"),
            ("bus.verdict", "complete"),
        ])
    );
    assert_eq!(runs[2]["messaging.destination.name"], "work");
    assert!(!runs[2].contains_key("messaging.destination.subscription.name"));
}

/// A run that did not succeed says what kind of error that was, and nothing of its text.
#[bus::test]
async fn a_run_that_fails_tells_the_kind_of_its_error() {
    for (todo, verdict, error) in [
        (Todo::Fail { times: 1, seconds: 1 }, "retry", "Handler"),
        (Todo::DeadLetter, "dead-letter", "Handler"),
        (Todo::Panic, "retry", "Handler"),
    ] {
        let (keeper, _guard) = Keeper::start();
        let host = host(&Seen::default()).await;
        host.bus().send(Work::to(todo.clone())).await.expect("sent");
        host.settled().await;
        let run = &keeper.named("process")[0];
        let told = ["bus.verdict", "error.type", "otel.status_code"].map(|name| run[name].as_str());
        assert_eq!(told, [verdict, error, "ERROR"], "{todo:?}");
    }
}

/// Whatever becomes of a message: no span has a part of its body, or a text of an error.
#[bus::test]
async fn no_span_tells_anything_of_a_body() {
    let (keeper, _guard) = Keeper::start();
    let spans = super::spans::Recorder::start();
    let host = host(&Seen::default()).await;
    for todo in [Todo::Nothing, Todo::Publish, Todo::DeadLetter, Todo::Panic] {
        host.bus()
            .send(Work::to(todo))
            .header(Headers::BAGGAGE, format!("key={SECRET}"))
            .await
            .expect("sent");
    }
    host.advance(1.hours()).await;
    assert!(spans.named("process work").len() > 4, "it panicked more than once");
    assert!(!spans.text().contains(SECRET), "{}", spans.text());
    drop((spans, keeper));
}
