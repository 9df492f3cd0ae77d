//! Traces and logs: all that a program has to do for them.

use std::io::{IsTerminal, stderr};

use anyhow::Context;
use opentelemetry::propagation::TextMapCompositePropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Exports traces for as long as it is there.
#[derive(Debug)]
pub struct Traces(Option<SdkTracerProvider>);

/// Has logs written, and traces exported where the environment says to which endpoint.
///
/// # Errors
/// If the endpoint cannot be one.
pub fn start() -> anyhow::Result<Traces> {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let logs = tracing_subscriber::fmt::layer().with_ansi(stderr().is_terminal()).with_writer(stderr);
    let provider = exported()?;
    let traces = provider
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer("orders")));
    tracing_subscriber::registry().with(filter).with(logs).with(traces).try_init()?;
    // For what comes in over HTTP; the bus needs none.
    opentelemetry::global::set_text_map_propagator(TextMapCompositePropagator::new(vec![
        Box::new(TraceContextPropagator::new()),
        Box::new(BaggagePropagator::new()),
    ]));
    Ok(Traces(provider))
}

fn exported() -> anyhow::Result<Option<SdkTracerProvider>> {
    if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_none() {
        return Ok(None);
    }
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpJson).build();
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter.context("traces cannot be exported")?)
        .with_resource(Resource::builder().with_service_name("orders").build());
    Ok(Some(provider.build()))
}

impl Traces {
    /// Exports what has not been yet.
    pub fn shut_down(self) {
        if let Some(Err(error)) = self.0.map(|provider| provider.shutdown()) {
            tracing::warn!(%error, "the last traces were not exported");
        }
    }
}
