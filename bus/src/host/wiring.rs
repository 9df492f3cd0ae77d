//! Checks, before anything is connected, that handlers, providers, transports, locks and configuration fit together,
//! and answers with all that does not, or with a plan.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Host;
use super::builder::HostBuilder;
use super::config::{LocksAt, OnOverrun};
use crate::clock::Clock;
use crate::contract::{LockId, LockManager, Reach, Scheme, StoreUrl, Transport};
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::Middleware;
use crate::processor::Processor;
use crate::registry;
use crate::scope::Values;
use crate::settings::{Order, Resolved};
use crate::singleton::LockTiming;

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
    pub(super) processors: Vec<Planned>,
    pub(super) values: Values,
    pub(super) middleware: Vec<Arc<dyn Middleware>>,
    pub(super) clock: Clock,
    pub(super) grace: std::time::Duration,
}

/// The transports by name.
pub(super) type Transports = BTreeMap<String, Source<dyn Transport>>;

/// Something to be opened from its URL, or given.
pub(super) enum Source<T: ?Sized> {
    Url(StoreUrl, &'static Scheme),
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

impl Source<dyn Transport> {
    fn reach(&self) -> Reach {
        match self {
            Source::Url(_, scheme) => scheme.reach,
            Source::Given(transport) => transport.guarantees().reach,
        }
    }
}

impl Source<dyn LockManager> {
    fn reach(&self) -> Reach {
        match self {
            Source::Url(_, scheme) => scheme.reach,
            Source::Given(locks) => locks.guarantees().reach,
        }
    }

    fn shown(&self) -> String {
        match self {
            Source::Url(url, _) => url.to_string(),
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
    for problem in registry::check(&builder.processors, &builder.values) {
        problems.add(problem);
    }
    let endpoints: Vec<_> = builder.processors.iter().map(|processor| processor.endpoint.clone()).collect();
    for error in builder.config.unknown_processors(&endpoints) {
        problems.add(error);
    }
    let (transports, fallback) = transports(&builder, &mut problems);
    let locks = locks(&builder, &transports, &mut problems);
    let processors = builder
        .processors
        .iter()
        .filter_map(|processor| planned(&builder, processor, &transports, &mut problems))
        .collect::<Vec<_>>();
    singletons(&builder, &processors, &transports, locks.as_ref(), &mut problems);
    problems.into_result()?;
    Ok(Host {
        plan: Plan {
            transports,
            fallback,
            locks,
            locks_reach: builder.config.locks_reach,
            on_overrun: builder.config.on_overrun,
            processors,
            values: builder.values,
            middleware: builder.middleware,
            clock: builder.clock,
            grace: builder.config.shutdown_grace_period,
        },
    })
}

/// The transports alone, for a program that only sends.
pub(super) fn transports_alone(builder: HostBuilder) -> Result<(Transports, Clock)> {
    let mut problems = Problems::default();
    for mistake in &builder.mistakes {
        problems.add(mistake);
    }
    let (transports, _) = transports(&builder, &mut problems);
    problems.into_result()?;
    Ok((transports, builder.clock))
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
        let Some(scheme) = problems.take(Scheme::find(url.scheme())) else { continue };
        if scheme.transport.is_none() {
            problems.add(format!("transports.{name}: {}:// has locks but carries no messages", url.scheme()));
        } else if sources.insert(name.to_string(), Source::Url(url, scheme)).is_some() {
            problems.add(format!("the transport {name} is given twice: in code and in the configuration"));
        }
    }
    (sources, configured.is_fallback)
}

/// Whether the configuration has a transport of that name, be it one that cannot be had.
fn is_configured(builder: &HostBuilder, transport: &str) -> bool {
    builder.config.transports.keys().any(|name| name.as_str() == transport)
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
            Some(Source::Url(url, _)) => url.clone(),
            None if is_configured(builder, DEFAULT) => return None,
            _ => {
                problems.add("locks = \"default\" means the store of the transport `default`, which has no URL here: write the locks' own URL");
                return None;
            }
        },
    };
    let scheme = problems.take(Scheme::find(url.scheme()))?;
    if scheme.locks.is_none() {
        problems.add(format!("locks: {}:// carries messages but has no locks", url.scheme()));
        return None;
    }
    Some(Source::Url(url, scheme))
}

fn planned(
    builder: &HostBuilder,
    processor: &Processor,
    transports: &Transports,
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
    let lock = match processor.singleton {
        true => Some(problems.take(planned_lock(builder, processor))?),
        false => None,
    };
    Some(Planned { processor: processor.clone(), settings, lock })
}

fn planned_lock(builder: &HostBuilder, processor: &Processor) -> Result<PlannedLock> {
    let times = builder.config.lock_times_for(&processor.endpoint);
    let mut timing = times.lock_lease.map_or_else(LockTiming::default, LockTiming::new);
    if let Some(every) = times.lock_renew_every {
        timing = timing.renew_every(every);
    }
    if let Some(timeout) = times.lock_try_timeout {
        timing = timing.try_timeout(timeout);
    }
    let timing = timing.checked().map_err(|error| {
        Error::new(
            ErrorKind::Config,
            format!("{}: the lock of `{}`: {error}", place(processor), processor.name),
        )
    })?;
    let namespace = builder.config.namespace.as_ref().map(|name| name.as_str());
    Ok(PlannedLock { id: LockId::of_endpoint(namespace, processor.transport, &processor.endpoint), timing })
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

/// Where a processor stands in the user's source.
pub(super) fn place(processor: &Processor) -> String {
    format!("{}:{}", processor.file, processor.line)
}
