//! Checks, before anything is connected, that handlers, providers, transports, locks and configuration fit together,
//! and answers with all that does not, or with a plan.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Host;
use super::around::Around;
use super::builder::HostBuilder;
use super::config::{Config, LockTimes, LocksAt, OnOverrun, OnStoreDown};
use super::liveness::Addresses;
use super::metrics::Measuring;
use super::plugin::Plugin;
use crate::clock::Clock;
use crate::contract::{LeaseRange, LockId, LockManager, Reach, Scheme, StoreUrl, Transport};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Endpoint;
use crate::processor::{Processor, Provider};
use crate::pump::Throttle;
use crate::registry;
use crate::scope::Values;
use crate::sender::OutgoingChain;
use crate::settings::{Order, Resolved};
use crate::singleton::{DEFAULT_LOCK_LEASE, LockTiming};

/// The transport that messages go to unless they name another.
pub(super) const DEFAULT: &str = "default";

/// A host's wiring, found to be sound as far as that can be known without connecting.
pub(super) struct Plan {
    pub(super) transports: Transports,
    /// Nothing was configured, so that the default transport is the embedded one.
    pub(super) fallback: bool,
    pub(super) locks: Option<Source<dyn LockManager>>,
    pub(super) locks_reach: Option<Reach>,
    pub(super) on_overrun: OnOverrun,
    pub(super) on_store_down: OnStoreDown,
    pub(super) store_wait_limit: Option<std::time::Duration>,
    pub(super) warn_unread_after: std::time::Duration,
    pub(super) processors: Vec<Planned>,
    pub(super) providers: Vec<Provider>,
    pub(super) values: Values,
    pub(super) around: Around,
    pub(super) outgoing: OutgoingChain,
    pub(super) plugins: Vec<Arc<dyn Plugin>>,
    pub(super) addresses: Addresses,
    pub(super) throttle: Throttle,
    /// Of locks that plugins compete for.
    pub(super) lock_timing: LockTiming,
    pub(super) namespace: Option<String>,
    pub(super) clock: Clock,
    pub(super) measuring: Measuring,
    pub(super) grace: std::time::Duration,
}

/// The transports by name.
pub(super) type Transports = BTreeMap<String, Source<dyn Transport>>;

/// Something to be opened from its URL, or given.
pub(super) enum Source<T: ?Sized> {
    /// The last is where it was written, for people.
    Url(StoreUrl, &'static Scheme, String),
    Given(Arc<T>),
}

/// One processor with what is in force for it.
#[derive(Clone)]
pub(super) struct Planned {
    pub(super) processor: Processor,
    pub(super) settings: Resolved,
    pub(super) lock: Option<PlannedLock>,
}

/// A singleton's lock.
#[derive(Clone)]
pub(super) struct PlannedLock {
    pub(super) id: LockId,
    pub(super) timing: LockTiming,
}

impl<T: ?Sized> Source<T> {
    /// Where the address was written, if it has one.
    pub(super) fn written(&self) -> Option<String> {
        match self {
            Source::Url(.., written) => Some(written.clone()),
            Source::Given(_) => None,
        }
    }
}

impl Source<dyn Transport> {
    fn reach(&self) -> Reach {
        match self {
            Source::Url(url, scheme, _) => url.stated_reach().unwrap_or(scheme.reach),
            Source::Given(transport) => transport.guarantees().reach,
        }
    }

    /// Its address, without secrets.
    pub(super) fn shown(&self) -> String {
        match self {
            Source::Url(url, ..) => url.to_string(),
            Source::Given(transport) => transport.guarantees().store,
        }
    }
}

impl Source<dyn LockManager> {
    fn reach(&self) -> Reach {
        match self {
            Source::Url(url, scheme, _) => url.stated_reach().unwrap_or(scheme.reach),
            Source::Given(locks) => locks.guarantees().reach,
        }
    }

    fn leases(&self) -> LeaseRange {
        match self {
            Source::Url(_, scheme, _) => scheme.leases,
            Source::Given(locks) => locks.guarantees().leases,
        }
    }

    /// Their address, without secrets.
    pub(super) fn shown(&self) -> String {
        match self {
            Source::Url(url, ..) => url.to_string(),
            Source::Given(locks) => locks.guarantees().authority,
        }
    }
}

/// Everything that is wrong, in the order in which it was found.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, problem: impl fmt::Display) {
        let problem = problem.to_string();
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    fn into_result(self) -> Result<()> {
        let count = match self.0.len() {
            0 => return Ok(()),
            1 => "one thing is wrong".to_owned(),
            count => format!("{count} things are wrong"),
        };
        Err(Error::new(
            ErrorKind::Wiring,
            format!("the host does not start: {count}\n  {}", self.0.join("\n  ")),
        ))
    }
}

/// Checks everything and makes the plan.
pub(super) fn check(builder: HostBuilder) -> Result<Host> {
    let mut problems = Problems::default();
    for mistake in &builder.mistakes {
        problems.add(mistake);
    }
    let providers = builder.providers();
    for problem in registry::check_with(&builder.processors, &providers, &builder.values) {
        problems.add(problem);
    }
    if builder.leaves_nothing() {
        problems.add("all processors of this binary are left out, by `only` or `without`");
    }
    let endpoints: Vec<_> = builder.processors.iter().map(|processor| processor.endpoint.clone()).collect();
    for error in builder.config.unknown_processors(&endpoints) {
        problems.add(error);
    }
    let (transports, fallback) = transports(&builder, &mut problems);
    middleware_of_nothing(&builder, &transports, &mut problems);
    let locks = locks(&builder, &transports, &mut problems);
    let processors = builder
        .processors
        .iter()
        .filter_map(|processor| planned(&builder, processor, &transports, locks.as_ref(), &mut problems))
        .collect::<Vec<_>>();
    singletons(&builder, &processors, &transports, locks.as_ref(), &mut problems);
    let lock_timing = of_plugins(&builder, locks.as_ref(), &mut problems);
    problems.into_result()?;
    Ok(Host {
        plan: Plan {
            transports,
            fallback,
            locks,
            locks_reach: builder.config.locks_reach,
            on_overrun: builder.config.on_overrun,
            on_store_down: builder.config.on_store_down,
            store_wait_limit: builder.config.store_wait_limit,
            warn_unread_after: builder.config.warn_unread_after,
            processors,
            providers,
            values: builder.values,
            around: builder.around,
            outgoing: builder.outgoing,
            plugins: builder.plugins,
            addresses: Addresses { health: builder.config.health, alive: builder.config.alive },
            throttle: throttle(&builder.config),
            lock_timing,
            namespace: builder.config.namespace.as_ref().map(ToString::to_string),
            clock: builder.clock,
            measuring: builder.measuring,
            grace: builder.config.shutdown_grace_period,
        },
    })
}

fn throttle(config: &Config) -> Throttle {
    let limit = |limit: Option<u32>| limit.map(|limit| limit as usize);
    Throttle::new(limit(config.throttle), limit(config.throttle_per_second))
}

/// The transports alone, for a program that only sends.
pub(super) fn transports_alone(builder: HostBuilder) -> Result<(Transports, Clock, Measuring)> {
    let mut problems = Problems::default();
    for mistake in &builder.mistakes {
        problems.add(mistake);
    }
    let (transports, _) = transports(&builder, &mut problems);
    middleware_of_nothing(&builder, &transports, &mut problems);
    problems.into_result()?;
    Ok((transports, builder.clock, builder.measuring))
}

/// The transports, and whether they are those of a program that configured none. One that cannot be had is a problem of
/// its own, told once: what depends on it is not complained about as well.
fn transports(builder: &HostBuilder, problems: &mut Problems) -> (Transports, bool) {
    let mut sources: BTreeMap<_, _> = builder
        .transports
        .iter()
        .map(|(name, transport)| (name.clone(), Source::Given(Arc::clone(transport))))
        .collect();
    if builder.config.transports.is_empty() && !sources.is_empty() {
        return (sources, false);
    }
    let Some(configured) = problems.take(builder.config.transports_in_force()) else {
        return (sources, false);
    };
    for (name, url) in configured.urls {
        let address = builder.config.address_of_transport(name.as_str());
        let Some(scheme) = problems.take(found(&url, &address)) else { continue };
        if scheme.transport.is_none() {
            problems.add(format!("{address}: {}:// has locks but carries no messages", url.scheme()));
        } else if sources.insert(name.to_string(), Source::Url(url, scheme, address)).is_some() {
            problems.add(format!("the transport {name} is given twice: in code and in the configuration"));
        }
    }
    (sources, configured.is_fallback)
}

/// Whether the configuration has a transport of that name, be it one that cannot be had.
fn is_configured(builder: &HostBuilder, transport: &str) -> bool {
    builder.config.transports.keys().any(|name| name.as_str() == transport)
}

/// Middleware for a transport that is not there would never see a message.
fn middleware_of_nothing(builder: &HostBuilder, transports: &Transports, problems: &mut Problems) {
    let around = builder.around.of_transports.keys().map(String::as_str);
    for name in around.chain(builder.outgoing.transports()) {
        if !transports.contains_key(name) && !is_configured(builder, name) {
            let known = transports.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            problems.add(format!(
                "there is a middleware for the transport {name:?}, which is not configured (there is {known}): add it under [transports], or correct the name"
            ));
        }
    }
}

fn locks(
    builder: &HostBuilder,
    transports: &Transports,
    problems: &mut Problems,
) -> Option<Source<dyn LockManager>> {
    if let Some(given) = &builder.locks {
        if builder.config.locks.is_some() {
            problems.add("the lock manager is given twice: in code and as `locks` in the configuration");
        }
        return Some(Source::Given(Arc::clone(given)));
    }
    let url = match builder.config.locks.as_ref()? {
        LocksAt::Url(url) => url.clone(),
        LocksAt::DefaultTransport => match transports.get(DEFAULT) {
            Some(Source::Url(url, ..)) => url.clone(),
            None if is_configured(builder, DEFAULT) => return None,
            _ => {
                problems.add("locks = \"default\" means the store of the transport `default`, which has no URL here: write the locks' own URL");
                return None;
            }
        },
    };
    let address = builder.config.address_of_locks();
    let scheme = problems.take(found(&url, &address))?;
    if scheme.locks.is_none() {
        problems.add(format!("{address}: {}:// carries messages but has no locks", url.scheme()));
        return None;
    }
    Some(Source::Url(url, scheme, address))
}

/// The scheme of an address that was written there.
fn found(url: &StoreUrl, address: &str) -> Result<&'static Scheme> {
    Scheme::find(url.scheme()).map_err(|error| Error::new(ErrorKind::Config, format!("{address}: {error}")))
}

fn planned(
    builder: &HostBuilder,
    processor: &Processor,
    transports: &Transports,
    locks: Option<&Source<dyn LockManager>>,
    problems: &mut Problems,
) -> Option<Planned> {
    if !transports.contains_key(processor.transport) && !is_configured(builder, processor.transport) {
        let known = transports.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        problems.add(format!(
            "{}: `{}` reads {} from the transport {:?}, which is not configured (there is {known}): add it under [transports]",
            place(processor), processor.name, processor.endpoint, processor.transport
        ));
    }
    let in_code = processor.settings.clone();
    let settings =
        problems.take(builder.config.settings_for(&processor.endpoint, processor.singleton, in_code))?;
    if settings.retention.is_some() && matches!(processor.endpoint, Endpoint::Queue(_)) {
        problems.add(format!(
            "{}: `{}` has a retention, and {} is a queue: only a subscription has one, since a command is not dropped because nobody reads it; remove it, or give the commands a time to live",
            place(processor), processor.name, processor.endpoint
        ));
    }
    // What was given can be asked at once, what has a URL when it is open.
    if let Some(Source::Given(transport)) = transports.get(processor.transport)
        && let Some(problem) = retention_kept(processor, &settings, &**transport)
    {
        problems.add(problem);
    }
    let lock = match processor.singleton {
        true => Some(problems.take(planned_lock(builder, processor, locks))?),
        false => None,
    };
    Some(Planned { processor: processor.clone(), settings, lock })
}

fn planned_lock(
    builder: &HostBuilder,
    processor: &Processor,
    locks: Option<&Source<dyn LockManager>>,
) -> Result<PlannedLock> {
    let times = builder.config.lock_times_for(&processor.endpoint);
    let of_whom = format!("{}: the lock of `{}`", place(processor), processor.name);
    let timing = timing(times, locks, &of_whom)?;
    let namespace = builder.config.namespace.as_ref().map(|name| name.as_str());
    Ok(PlannedLock { id: LockId::of_endpoint(namespace, processor.transport, &processor.endpoint), timing })
}

/// The times of a lock, if they fit together and the lock manager takes them.
fn timing(times: LockTimes, locks: Option<&Source<dyn LockManager>>, of_whom: &str) -> Result<LockTiming> {
    let leases = locks.map(Source::leases);
    let lease = times.lock_lease.or(leases.map(|leases| leases.default)).unwrap_or(DEFAULT_LOCK_LEASE);
    let refused = |why: &dyn fmt::Display| Error::new(ErrorKind::Config, format!("{of_whom}: {why}"));
    if let Some((locks, leases)) = locks.zip(leases).filter(|(_, leases)| !leases.contains(lease)) {
        return Err(refused(&format_args!(
            "lock_lease is {lease:?}, and the locks at {} take {leases}: set it within that",
            locks.shown()
        )));
    }
    let mut timing = LockTiming::new(lease);
    if let Some(every) = times.lock_renew_every {
        timing = timing.renew_every(every);
    }
    if let Some(timeout) = times.lock_try_timeout {
        timing = timing.try_timeout(timeout);
    }
    timing.checked().map_err(|error| refused(&error))
}

/// The times of the locks that plugins compete for, who need a lock manager as singletons do.
fn of_plugins(
    builder: &HostBuilder,
    locks: Option<&Source<dyn LockManager>>,
    problems: &mut Problems,
) -> LockTiming {
    let Some(plugin) = builder.plugins.iter().find(|plugin| plugin.needs_locks()) else {
        return LockTiming::default();
    };
    let of_whom = format!("the locks of the plugin `{}`", plugin.name());
    if locks.is_none() && builder.config.locks.is_none() {
        problems.add(format!(
            "{of_whom}: there is no lock manager; write locks = \"default\", or see what singletons need"
        ));
    }
    problems.take(timing(builder.config.lock_times(), locks, &of_whom)).unwrap_or_default()
}

/// A singleton needs a lock manager, and one that reaches as far as its messages.
fn singletons(
    builder: &HostBuilder,
    processors: &[Planned],
    transports: &Transports,
    locks: Option<&Source<dyn LockManager>>,
    problems: &mut Problems,
) {
    let singletons: Vec<_> = processors.iter().filter(|planned| planned.lock.is_some()).collect();
    for planned in &singletons {
        let processor = &planned.processor;
        match (locks, transports.get(processor.transport)) {
            // Where it was given and cannot be had, that has been said.
            (None, _) if builder.config.locks.is_some() => {}
            (None, _) => problems.add(format!(
                "{}: `{}` is a singleton, and there is no lock manager. Write locks = \"default\", which is the store of the default transport, or locks = \"sqlite://…\" at the top of bus.toml in the directory where the program is started; or set BUS_LOCKS. In code it is Host::builder().locks_at(\"default\"), or .locks(…) for one of your own: a host that is built in code reads no bus.toml, see bus::run_with",
                place(processor), processor.name
            )),
            (Some(locks), Some(transport)) => {
                if let Some(problem) = too_short(processor, locks.reach(), &locks.shown(), transport.reach(), builder.config.locks_reach) {
                    problems.add(problem);
                }
            }
            (Some(_), None) => {}
        }
    }
}

/// Why a lock that reaches this far does not do for messages that reach that far.
pub(super) fn too_short(
    processor: &Processor,
    locks: Reach,
    locks_at: &str,
    messages: Reach,
    allowed: Option<Reach>,
) -> Option<String> {
    let permitted = allowed.is_some_and(|allowed| allowed <= locks);
    (locks < messages && !permitted).then(|| {
        format!(
            "{}: `{}` is a singleton whose messages reach the whole {messages} (transport {:?}), but its locks at {locks_at} reach only the {locks}: two could run at once. Use locks of that reach, or, if only one {locks} ever runs it, write locks_reach = \"{locks}\"",
            place(processor), processor.name, processor.transport
        )
    })
}

/// Whether the order that a processor asks for can be had from its transport.
pub(super) fn order_kept(
    processor: &Processor,
    settings: &Resolved,
    transport: &dyn Transport,
) -> Option<String> {
    (settings.order == Order::Strict && !transport.capabilities().strict_order).then(|| {
        format!(
            "{}: `{}` has order = \"strict\", which the transport {:?} cannot keep",
            place(processor),
            processor.name,
            processor.transport
        )
    })
}

/// Whether the retention that a processor asks for can be had from its transport: one that is not kept would have the
/// subscription collect for ever, unseen.
pub(super) fn retention_kept(
    processor: &Processor,
    settings: &Resolved,
    transport: &dyn Transport,
) -> Option<String> {
    // That a queue has none is said apart.
    let is_subscription = matches!(processor.endpoint, Endpoint::Subscription { .. });
    (settings.retention.is_some() && is_subscription && transport.capabilities().readers.is_none()).then(
        || {
            format!(
                "{}: `{}` has a retention, which the transport {:?} cannot keep: it does not tell who reads its subscriptions, and sweeps none; remove the retention, or give the events a time to live",
                place(processor), processor.name, processor.transport
            )
        },
    )
}

/// Where a processor stands in the user's source.
pub(super) fn place(processor: &Processor) -> String {
    format!("{}:{}", processor.file, processor.line)
}
