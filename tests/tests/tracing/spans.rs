//! What an OpenTelemetry SDK is told of spans, in this thread.

use std::collections::BTreeMap;

use opentelemetry::trace::{SpanId, TraceId, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

/// Records, for as long as it is there, what is traced in this thread.
pub(crate) struct Recorder {
    spans: InMemorySpanExporter,
    _provider: SdkTracerProvider,
    _guard: DefaultGuard,
}

impl Recorder {
    pub(crate) fn start() -> Self {
        let spans = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        Recorder { spans, _provider: provider, _guard: guard }
    }

    /// The spans of this name that have ended, in the order of their beginnings.
    pub(crate) fn named(&self, name: &str) -> Vec<Seen> {
        let mut all = self.spans.get_finished_spans().expect("spans");
        all.sort_by_key(|span| span.start_time);
        all.into_iter().filter(|span| span.name == name).map(Seen).collect()
    }

    /// The only one of this name.
    #[track_caller]
    pub(crate) fn only(&self, name: &str) -> Seen {
        let found = self.named(name);
        let all = self.spans.get_finished_spans().expect("spans");
        let names: Vec<_> = all.iter().map(|span| &span.name).collect();
        assert_eq!(found.len(), 1, "{name} among {names:?}");
        found.into_iter().next().expect("one")
    }

    /// All that has been told, as text.
    pub(crate) fn text(&self) -> String {
        format!("{:?}", self.spans.get_finished_spans().expect("spans"))
    }
}

/// A span.
#[derive(Debug)]
pub(crate) struct Seen(pub(crate) SpanData);

impl Seen {
    pub(crate) fn trace(&self) -> TraceId {
        self.0.span_context.trace_id()
    }

    pub(crate) fn id(&self) -> SpanId {
        self.0.span_context.span_id()
    }

    pub(crate) fn is_child_of(&self, parent: &Seen) -> bool {
        self.0.parent_span_id == parent.id()
            && self.trace() == parent.trace()
            && self.0.links.links.is_empty()
    }

    /// Whether it is the root of a trace of its own, and linked to that span.
    pub(crate) fn is_linked_to(&self, other: &Seen) -> bool {
        let links = &self.0.links.links;
        self.0.parent_span_id == SpanId::INVALID
            && self.trace() != other.trace()
            && links.len() == 1
            && links[0].span_context.span_id() == other.id()
            && links[0].span_context.trace_id() == other.trace()
    }

    /// Its attributes.
    pub(crate) fn attributes(&self) -> BTreeMap<String, String> {
        self.0.attributes.iter().map(|pair| (pair.key.to_string(), pair.value.to_string())).collect()
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<String> {
        self.attributes().remove(name)
    }
}
