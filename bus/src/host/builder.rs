//! Puts a host together in code.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::config::Config;
use super::producer::Producer;
use super::{Host, wiring};
use crate::clock::Clock;
use crate::contract::{LockManager, Transport};
use crate::error::{Error, Result};
use crate::message::Endpoint;
use crate::pipeline::Middleware;
use crate::processor::Processor;
use crate::registry;
use crate::scope::Values;

/// A host that is being put together. Mistakes are kept and told, all at once, by [`build`](HostBuilder::build).
///
/// ```no_run
/// # async fn example() -> bus::Result<()> {
/// bus::Host::builder()
///     .transport("default", "sqlite://orders.db")
///     .locks_at("default")
///     .provide(String::from("a value that handlers ask for with Dep<String>"))
///     .build()?
///     .run()
///     .await
/// # }
/// ```
#[must_use = "nothing happens until it is built"]
pub struct HostBuilder {
    pub(super) config: Config,
    pub(super) processors: Vec<Processor>,
    pub(super) values: Values,
    pub(super) middleware: Vec<Arc<dyn Middleware>>,
    pub(super) transports: BTreeMap<String, Arc<dyn Transport>>,
    pub(super) locks: Option<Arc<dyn LockManager>>,
    pub(super) clock: Clock,
    pub(super) mistakes: Vec<Error>,
}

impl HostBuilder {
    /// All processors of the binary, over a configuration.
    pub(super) fn new(config: Config) -> Self {
        HostBuilder {
            config,
            processors: registry::processors(),
            values: Values::default(),
            middleware: Vec::new(),
            transports: BTreeMap::new(),
            locks: None,
            clock: Clock::system(),
            mistakes: Vec::new(),
        }
    }

    /// Uses this configuration instead of an empty one.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Adds a transport by its URL, or replaces the one of that name. Messages go to `default` unless they name another.
    pub fn transport(mut self, name: &str, url: &str) -> Self {
        match self.config.clone().with_transport(name, url) {
            Ok(config) => self.config = config,
            Err(error) => self.mistakes.push(error),
        }
        self
    }

    /// Adds a transport of your own.
    pub fn transport_instance(mut self, name: &str, transport: impl Transport) -> Self {
        self.transports.insert(name.to_owned(), Arc::new(transport));
        self
    }

    /// Says where the locks of singletons are: a URL, or `default` for the store of that transport.
    pub fn locks_at(mut self, locks: &str) -> Self {
        match self.config.clone().with_locks(locks) {
            Ok(config) => self.config = config,
            Err(error) => self.mistakes.push(error),
        }
        self
    }

    /// Gives a lock manager of your own.
    pub fn locks(mut self, locks: impl LockManager) -> Self {
        self.locks = Some(Arc::new(locks));
        self
    }

    /// Gives a value that handlers and providers ask for with `Dep<T>`, instead of a `#[provide]` of that type.
    pub fn provide<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.values.insert(Arc::new(value));
        self
    }

    /// Adds a middleware for every processor, inside of those added before.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Arc::new(middleware));
        self
    }

    /// Runs only the processors of these endpoints (`queue` or `topic/subscription`).
    pub fn only<'e>(mut self, endpoints: impl IntoIterator<Item = &'e str>) -> Self {
        let wanted = self.named(endpoints);
        self.processors.retain(|processor| wanted.contains(&processor.endpoint));
        self
    }

    /// Leaves out the processors of these endpoints (`queue` or `topic/subscription`).
    pub fn without<'e>(mut self, endpoints: impl IntoIterator<Item = &'e str>) -> Self {
        let unwanted = self.named(endpoints);
        self.processors.retain(|processor| !unwanted.contains(&processor.endpoint));
        self
    }

    /// How long a shutdown waits for what is in flight; 30 s by default.
    pub fn shutdown_grace_period(mut self, grace: Duration) -> Self {
        self.config.shutdown_grace_period = grace;
        self
    }

    /// Reads the time here, instead of from the machine: for tests with paused time.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Checks the whole wiring.
    ///
    /// # Errors
    /// [`ErrorKind::Wiring`](crate::ErrorKind::Wiring) with everything that is wrong, by file and line.
    pub fn build(self) -> Result<Host> {
        wiring::check(self)
    }

    /// Connects the transports for sending alone; processors, locks and provided values are left aside.
    ///
    /// # Errors
    /// If the configuration is wrong or a store does not answer.
    pub async fn connect(self) -> Result<Producer> {
        Producer::connect(self).await
    }

    fn named<'e>(&mut self, endpoints: impl IntoIterator<Item = &'e str>) -> Vec<Endpoint> {
        let mut named = Vec::new();
        for text in endpoints {
            match Endpoint::parse(text) {
                Ok(endpoint) if self.processors.iter().any(|p| p.endpoint == endpoint) => {
                    named.push(endpoint)
                }
                Ok(_) => self.mistakes.push(Error::new(
                    crate::ErrorKind::Wiring,
                    format!("`only` or `without` names {text:?}, and no processor of this binary reads that"),
                )),
                Err(error) => self.mistakes.push(error),
            }
        }
        named
    }
}

impl fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuilder")
            .field("config", &self.config)
            .field("processors", &self.processors.len())
            .finish_non_exhaustive()
    }
}
