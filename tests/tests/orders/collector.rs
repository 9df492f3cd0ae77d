//! A collector of traces, by OTLP as JSON over HTTP, that a test reads back.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;

/// A span as it was exported.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    /// 2 is a server's, 4 a producer's, 5 a consumer's.
    pub(crate) kind: u64,
    pub(crate) attributes: BTreeMap<String, String>,
}

#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<Span>>>);

/// Collects until the test's runtime ends.
pub(crate) struct Collector {
    received: Received,
    pub(crate) endpoint: String,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let received = Received::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let routes = Router::new().route("/v1/traces", post(take)).with_state(received.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Collector { received, endpoint }
    }

    /// All spans of this trace so far.
    pub(crate) fn of_trace(&self, trace: &str) -> Vec<Span> {
        self.received.0.lock().iter().filter(|span| span.trace == trace).cloned().collect()
    }
}

async fn take(State(received): State<Received>, body: String) -> &'static str {
    let document: Value = serde_json::from_str(&body).expect("OTLP as JSON");
    let each = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    for resource in each(&document, "resourceSpans") {
        let service = attributes(&resource["resource"]);
        assert_eq!(service.get("service.name").map(String::as_str), Some("orders"), "{resource}");
        for scope in each(&resource, "scopeSpans") {
            received.0.lock().extend(each(&scope, "spans").iter().map(span));
        }
    }
    "{}"
}

fn span(span: &Value) -> Span {
    let text = |name: &str| span[name].as_str().unwrap_or_default().to_owned();
    Span {
        trace: text("traceId"),
        id: text("spanId"),
        parent: text("parentSpanId"),
        name: text("name"),
        kind: span["kind"].as_u64().unwrap_or_default(),
        attributes: attributes(span),
    }
}

fn attributes(of: &Value) -> BTreeMap<String, String> {
    let pairs = of["attributes"].as_array().cloned().unwrap_or_default();
    let pair = |pair: &Value| {
        let value = pair["value"].as_object()?.values().next()?;
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some((pair["key"].as_str()?.to_owned(), value))
    };
    pairs.iter().filter_map(pair).collect()
}
