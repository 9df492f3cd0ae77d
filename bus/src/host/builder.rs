//! Puts a host together in code.

use std::any::{TypeId, type_name};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::around::Around;
use super::config::{Config, OnStoreDown, closest};
use super::metrics::Measuring;
use super::plugin::Plugin;
use super::producer::Producer;
use super::{Host, wiring};
use crate::clock::Clock;
use crate::contract::{LockManager, Transport};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Endpoint;
use crate::pipeline::Middleware;
use crate::pipeline::layers::redact::Redact;
#[cfg(feature = "testing")]
use crate::processor::Handler;
use crate::processor::container::Container;
use crate::processor::{Processor, Provider, ScopeProvider};
use crate::registry;
use crate::scope::Values;
use crate::sender::{OutgoingChain, OutgoingMiddleware};

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
#[derive(Clone)]
#[must_use = "nothing happens until it is built"]
pub struct HostBuilder {
    pub(super) config: Config,
    pub(super) processors: Vec<Processor>,
    /// Some of the binary's processors were left out.
    narrowed: bool,
    /// Those that run are named one by one.
    by_hand: bool,
    pub(super) values: Values,
    pub(super) around: Around,
    pub(super) outgoing: OutgoingChain,
    pub(super) transports: BTreeMap<String, Arc<dyn Transport>>,
    pub(super) locks: Option<Arc<dyn LockManager>>,
    pub(super) plugins: Vec<Arc<dyn Plugin>>,
    pub(super) clock: Clock,
    pub(super) measuring: Measuring,
    pub(super) mistakes: Vec<Error>,
}

impl HostBuilder {
    /// All processors of the binary, over a configuration.
    pub(super) fn new(config: Config) -> Self {
        HostBuilder {
            config,
            processors: registry::processors(),
            narrowed: false,
            by_hand: false,
            values: Values::default(),
            around: Around::default(),
            outgoing: OutgoingChain::default(),
            transports: BTreeMap::new(),
            locks: None,
            plugins: Vec::new(),
            clock: Clock::system(),
            measuring: Measuring::default(),
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

    /// Gives a container of yours that opens a scope for each message: for what handlers ask for as
    /// [`Scoped<T>`](crate::Scoped). Instead of one given before.
    pub fn scope_provider(mut self, provider: impl ScopeProvider) -> Self {
        self.values.insert(Arc::new(Container::new(provider)));
        self
    }

    /// Adds a middleware for every processor, inside of those added before.
    pub fn middleware(mut self, middleware: impl Middleware) -> Self {
        self.around.of_host.push(Arc::new(middleware));
        self
    }

    /// Adds a middleware for the processors of one transport, inside of those added before and of those for every
    /// processor. Inside of it are a processor's own (`#[processor(middleware = …)]`).
    pub fn transport_middleware(mut self, transport: &str, middleware: impl Middleware) -> Self {
        self.around.of_transports.entry(transport.to_owned()).or_default().push(Arc::new(middleware));
        self
    }

    /// Adds a middleware for every message that is sent or published, after those added before.
    pub fn outgoing_middleware(mut self, middleware: impl OutgoingMiddleware) -> Self {
        self.outgoing.add(middleware);
        self
    }

    /// Adds a middleware for the messages that are sent to one transport, after those added before and those for every
    /// message.
    pub fn transport_outgoing_middleware(
        mut self,
        transport: &str,
        middleware: impl OutgoingMiddleware,
    ) -> Self {
        self.outgoing.add_for(transport, middleware);
        self
    }

    /// Takes out of texts what must be neither logged nor kept: secrets, names of people. The rule gets each text of an
    /// error that a handler, a middleware, a disposal or a plugin has answered or panicked with, and of a reason to
    /// dead-letter, and answers what may be shown. Logs, the store (retries, dead letters) and what is done before a message is
    /// dead-lettered get nothing else. If the rule panics nothing of the text is shown.
    ///
    /// ```
    /// let host = bus::Host::builder().redact(|text| text.replace("s3cret", "…").into());
    /// # drop(host);
    /// ```
    ///
    /// What a panic prints by itself is the panic hook's business, see [`std::panic::set_hook`].
    pub fn redact(mut self, rule: impl for<'t> Fn(&'t str) -> Cow<'t, str> + Send + Sync + 'static) -> Self {
        self.around.redact = Redact::by(rule);
        self
    }

    /// Runs this processor, and of the others only those that are named likewise:
    /// `.processor(send_receipt).processor(rebuild_cache)`. What only the others need (`#[provide]`) is not made.
    pub fn processor<F: 'static>(mut self, function: F) -> Self {
        let _ = function;
        if !self.by_hand {
            (self.by_hand, self.narrowed) = (true, true);
            self.processors.clear();
        }
        let of_function = |processor: &Processor| processor.function == TypeId::of::<F>();
        match registry::processors().into_iter().find(of_function) {
            Some(_) if self.processors.iter().any(of_function) => {}
            Some(processor) => self.processors.push(processor),
            None => {
                let mistake = format!("`{}` is no processor: it has no #[processor]", type_name::<F>());
                self.mistakes.push(Error::new(ErrorKind::Wiring, mistake));
            }
        }
        self
    }

    /// Adds a plugin, which is started after the processors and after the plugins added before. What clones of this builder
    /// build shares it.
    pub fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.plugins.push(Arc::new(plugin));
        self
    }

    /// Answers probes over HTTP at this address: `/live`, `/ready` and `/health`, see [`health`](super::health). Port 0 lets
    /// the system choose; [`HostHandle::health_address`](super::HostHandle::health_address) says what it chose.
    pub fn health(mut self, address: SocketAddr) -> Self {
        self.config.health = Some(address);
        self
    }

    /// Listens at this address, answers whoever connects with the time, and closes; until the host is asked to stop.
    pub fn alive(mut self, address: SocketAddr) -> Self {
        self.config.alive = Some(address);
        self
    }

    /// At most so many runs at once, of all processors together; see [`health`](super::health). By default no limit.
    pub fn throttle(mut self, at_once: u32) -> Self {
        self.config.throttle = Some(at_once);
        self
    }

    /// No more runs than so many begin within any second, of all processors together. By default no limit.
    pub fn throttle_per_second(mut self, runs: u32) -> Self {
        self.config.throttle_per_second = Some(runs);
        self
    }

    /// Runs only these processors, named by their endpoints (`queue` or `topic/subscription`) or their functions.
    /// What only the others need (`#[provide]`) is not made either.
    pub fn only<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        let wanted = self.named(names);
        self.narrow(|processor| wanted.contains(&processor.endpoint));
        self
    }

    /// Leaves out these processors, named by their endpoints (`queue` or `topic/subscription`) or their functions, and
    /// what only they need (`#[provide]`).
    pub fn without<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        let unwanted = self.named(names);
        self.narrow(|processor| !unwanted.contains(&processor.endpoint));
        self
    }

    /// How long a shutdown waits for what is in flight; 30 s by default.
    pub fn shutdown_grace_period(mut self, grace: Duration) -> Self {
        self.config.shutdown_grace_period = grace;
        self
    }

    /// What to do about a store that is not there when the host starts; by default it is waited for.
    pub fn on_store_down(mut self, policy: OnStoreDown) -> Self {
        self.config.on_store_down = policy;
        self
    }

    /// How long such a store is waited for; by default as long as it takes.
    pub fn store_wait_limit(mut self, limit: Duration) -> Self {
        self.config.store_wait_limit = Some(limit);
        self
    }

    /// After how long a subscription that nobody reads is warned of; a day by default, never if it is zero.
    pub fn warn_unread_after(mut self, unread: Duration) -> Self {
        self.config.warn_unread_after = unread;
        self
    }

    /// Hands the host's numbers to this provider of OpenTelemetry's, instead of the global one. See
    /// [`guide::tracing`](crate::guide::tracing).
    #[cfg(feature = "opentelemetry")]
    pub fn meter_provider(
        mut self,
        provider: impl opentelemetry::metrics::MeterProvider + Send + Sync + 'static,
    ) -> Self {
        self.measuring.provider = Some(Arc::new(provider));
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

    fn narrow(&mut self, stays: impl Fn(&Processor) -> bool) {
        self.narrowed = true;
        self.processors.retain(stays);
    }

    /// The providers that are used: all of the binary's, unless processors were left out.
    pub(super) fn providers(&self) -> Vec<Provider> {
        match self.narrowed {
            true => registry::needed(&self.processors, registry::providers(), &self.values),
            false => registry::providers(),
        }
    }

    /// Whether processors were left out until none was left, and rightly named.
    pub(super) fn leaves_nothing(&self) -> bool {
        self.narrowed && self.processors.is_empty() && self.mistakes.is_empty()
    }

    fn named<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) -> Vec<Endpoint> {
        let mut named = Vec::new();
        for name in names {
            let found: Vec<_> = self.processors.iter().filter(|p| p.endpoint.to_string() == name).collect();
            let found = match found.is_empty() {
                true => self.processors.iter().filter(|p| p.name == name).collect(),
                false => found,
            };
            match found.is_empty() {
                true => self.mistakes.push(self.unknown(name)),
                false => named.extend(found.iter().map(|processor| processor.endpoint.clone())),
            }
        }
        named
    }

    fn unknown(&self, name: &str) -> Error {
        let endpoints: Vec<_> = self.processors.iter().map(|p| p.endpoint.to_string()).collect();
        let functions = self.processors.iter().map(|p| p.name);
        let meant = closest(name, endpoints.iter().map(String::as_str).chain(functions));
        // Where nothing alike is there, it may be that nothing could be.
        let hint = match (meant, Endpoint::parse(name)) {
            (Some(meant), _) => format!("; did you mean {meant:?}?"),
            (None, Err(error)) => format!("; as an endpoint, {error}"),
            (None, Ok(_)) => String::new(),
        };
        Error::new(
            ErrorKind::Wiring,
            format!(
                "`only` or `without` names {name:?}, and no processor of this binary has that endpoint or name{hint}"
            ),
        )
    }
}

/// What a test host makes of a host.
#[cfg(feature = "testing")]
impl HostBuilder {
    /// The transports that are named: in the configuration, and by the binary's processors, also by those left out.
    pub(crate) fn transport_names(&self) -> std::collections::BTreeSet<String> {
        let configured = self.config.transports.keys().map(ToString::to_string);
        let given = self.transports.keys().cloned();
        let read = registry::processors().into_iter().map(|processor| processor.transport.to_owned());
        configured.chain(given).chain(read).collect()
    }

    /// What is sent passes this.
    pub(crate) fn outgoing(&self) -> OutgoingChain {
        self.outgoing.clone()
    }

    /// The processors that are to run.
    pub(crate) fn processors(&self) -> &[Processor] {
        &self.processors
    }

    /// Notes a mistake, to be told with all others.
    pub(crate) fn mistaken(mut self, mistake: Error) -> Self {
        self.mistakes.push(mistake);
        self
    }

    /// Puts these stores in the place of all that are named.
    pub(crate) fn over(
        mut self,
        transports: BTreeMap<String, Arc<dyn Transport>>,
        locks: Arc<dyn LockManager>,
    ) -> Self {
        self.config.transports.clear();
        self.config.locks = None;
        self.transports = transports;
        self.locks = Some(locks);
        self
    }

    /// Adds a middleware outside of all others.
    pub(crate) fn outermost(mut self, middleware: impl Middleware) -> Self {
        self.around.of_host.insert(0, Arc::new(middleware));
        self
    }

    /// Calls what `wrap` makes of each handler instead of the handler.
    pub(crate) fn around_handlers(mut self, wrap: impl Fn(&Processor) -> Arc<dyn Handler>) -> Self {
        for processor in &mut self.processors {
            processor.handler = wrap(processor);
        }
        self
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
