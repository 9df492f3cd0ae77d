//! The HTTP interface.

use axum::Json;
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bus::{Bus, MessageId};
use opentelemetry::propagation::Extractor;
use serde::{Deserialize, Serialize};
use tracing::Instrument;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::messages::PlaceOrder;

/// What a customer wants.
#[derive(Debug, Deserialize)]
pub struct NewOrder {
    item: String,
    quantity: u32,
}

/// What a customer is told.
#[derive(Debug, Serialize)]
pub struct Accepted {
    order: MessageId,
}

/// All paths, each request in a span.
pub fn routes(bus: Bus) -> Router {
    Router::new().route("/orders", post(place)).route_layer(from_fn(traced)).with_state(bus)
}

/// Accepts an order when its command is with the store.
async fn place(State(bus): State<Bus>, Json(new): Json<NewOrder>) -> Response {
    let order = MessageId::fresh();
    let command = PlaceOrder { order, item: new.item, quantity: new.quantity };
    match bus.send(command).message_id(order).await {
        Ok(_) => (StatusCode::ACCEPTED, Json(Accepted { order })).into_response(),
        Err(error) => {
            tracing::error!(%error, "an order was not taken");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

/// A span around a request, in the trace of whoever asks. What is sent meanwhile is in that trace, too.
async fn traced(path: MatchedPath, request: Request, next: Next) -> Response {
    let span = tracing::info_span!(
        "request",
        otel.name = format!("{} {}", request.method(), path.as_str()),
        otel.kind = "server",
        http.request.method = request.method().as_str(),
        http.route = path.as_str(),
        http.response.status_code = Empty,
    );
    let parent = opentelemetry::global::get_text_map_propagator(|propagator| {
        propagator.extract(&Headers(request.headers()))
    });
    // Nobody exports it where there is no endpoint to export to.
    let _ = span.set_parent(parent);
    let response = next.run(request).instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    response
}

struct Headers<'h>(&'h HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(axum::http::HeaderName::as_str).collect()
    }
}
