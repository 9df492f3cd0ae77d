//! What is around every run of a host: middleware, and what is redacted.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::pipeline::Middleware;
use crate::pipeline::layers::redact::Redact;
use crate::processor::Processor;

/// The middleware of the host and of its transports, the outermost first; and what is redacted of what runs have said.
#[derive(Clone, Default)]
pub(super) struct Around {
    pub(super) of_host: Vec<Arc<dyn Middleware>>,
    pub(super) of_transports: BTreeMap<String, Vec<Arc<dyn Middleware>>>,
    pub(super) redact: Redact,
}

impl Around {
    /// All that a processor's messages pass: the host's, the transport's, its own.
    pub(super) fn of(&self, processor: &Processor) -> Vec<Arc<dyn Middleware>> {
        let of_transport = self.of_transports.get(processor.transport).into_iter().flatten();
        self.of_host.iter().chain(of_transport).chain(&processor.middleware).map(Arc::clone).collect()
    }
}
