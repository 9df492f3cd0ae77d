//! The numbers of a host: what its meter has counted, and what it is at.
//!
//! * `families`: all of them, as they are handed out.
//! * `collected` (feature `opentelemetry`): has OpenTelemetry collect them.

#[cfg(feature = "opentelemetry")]
mod collected;
#[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
pub(super) mod families;

#[cfg(not(feature = "opentelemetry"))]
use crate::telemetry::Meter;

/// To whom the numbers are handed beside those who ask for them.
#[derive(Clone, Default)]
pub(super) struct Measuring {
    /// By default the global one.
    #[cfg(feature = "opentelemetry")]
    pub(super) provider: Option<std::sync::Arc<dyn opentelemetry::metrics::MeterProvider + Send + Sync>>,
}

#[cfg(not(feature = "opentelemetry"))]
impl Measuring {
    /// What a host counts with.
    pub(super) fn meter(&self) -> Meter {
        Meter::default()
    }
}
