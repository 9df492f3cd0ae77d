#![doc = include_str!("../../docs/configuration.md")]

mod duration;
mod key;
mod problem;
mod read;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind as IoErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::contract::{Reach, StoreUrl};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Endpoint, Name};
use crate::settings::{Resolved, Setting, Tuned};
pub use crate::singleton::OnOverrun;

pub(crate) use duration::write_duration;
pub(crate) use key::closest;

use problem::Place;

/// The transport that messages without `transport = "…"` go to.
pub const DEFAULT_TRANSPORT: &str = "default";

/// Where messages are kept when no transport is configured.
pub const DEFAULT_STORE: &str = "sqlite://bus.db";

const LOCKS_KEY: &str = "locks";

fn transport_key(name: &str) -> String {
    format!("transports.{name}")
}

/// What can be configured of a host, from a file, from variables or in code.
///
/// ```
/// use bus::host::config::Config;
///
/// let mut config = Config::default().with_transport("default", "sqlite://orders.db")?.with_locks("default")?;
/// config.shutdown_grace_period = std::time::Duration::from_secs(5);
/// # Ok::<(), bus::Error>(())
/// ```
///
/// Neither `Debug` nor `Display` shows credentials.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The transports by name. Empty means that nothing was configured: see [`Config::transports_in_force`].
    pub transports: BTreeMap<Name, StoreUrl>,
    /// Where the locks of singletons are; `None` if it was not said, and then no singleton starts.
    pub locks: Option<LocksAt>,
    /// Permission for locks that reach less far than the messages they guard.
    pub locks_reach: Option<Reach>,
    /// The first part of all lock ids, for programs that share a lock store.
    pub namespace: Option<Name>,
    /// How long a lock lasts unless it is renewed; `None` for the lock manager's default.
    pub lock_lease: Option<Duration>,
    /// How often a lock is renewed; `None` for a quarter of its lease.
    pub lock_renew_every: Option<Duration>,
    /// How long one attempt to take or renew a lock may go unanswered; `None` for a tenth of its lease.
    pub lock_try_timeout: Option<Duration>,
    /// What to do about a run that can neither be kept nor stopped.
    pub on_overrun: OnOverrun,
    /// What to do about a store that is not there when the host starts.
    pub on_store_down: OnStoreDown,
    /// How long a store is waited for at the start; `None` for as long as it takes.
    pub store_wait_limit: Option<Duration>,
    /// After how long a subscription that nobody reads is warned of, if its topic is published or consumed here; never, if
    /// it is zero.
    pub warn_unread_after: Duration,
    /// How long a shutdown waits for what is in flight.
    pub shutdown_grace_period: Duration,
    /// Where probes are answered over HTTP; nowhere if `None`.
    pub health: Option<SocketAddr>,
    /// Where whoever connects is told the time; nowhere if `None`.
    pub alive: Option<SocketAddr>,
    /// How many runs may be under way at once, of all processors together; `None` and 0 for no limit.
    pub throttle: Option<u32>,
    /// How many runs may begin within any second, of all processors together; `None` and 0 for no limit.
    pub throttle_per_second: Option<u32>,
    /// Settings of single processors, which win over those in the code.
    pub processors: BTreeMap<Endpoint, ProcessorConfig>,
    /// Where the addresses were written, by their keys: for what turns out to be wrong with one later.
    addresses: BTreeMap<String, Place>,
}

/// Where the locks of singletons are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocksAt {
    /// In this store.
    Url(StoreUrl),
    /// In the store of the transport called `default`: written `locks = "default"`.
    DefaultTransport,
}

/// What a host does about a store (a transport's, or the locks') that is not there when it starts: it is refused a
/// connection, or gets no answer. What waiting cannot mend (a log-in that is refused, tables of another version, a
/// mistake in a URL) ends the start in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnStoreDown {
    /// Waits for it, says so at once and every 30 s, and begins with everything that does not need it.
    #[default]
    Wait,
    /// Does not start.
    Fail,
}

impl fmt::Display for OnStoreDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnStoreDown::Wait => "wait",
            OnStoreDown::Fail => "fail",
        })
    }
}

/// What the configuration says of one processor. `None`: as in the code.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProcessorConfig {
    /// Its settings.
    pub settings: Tuned,
    /// As [`Config::lock_lease`], for this singleton.
    pub lock_lease: Option<Duration>,
    /// As [`Config::lock_renew_every`], for this singleton.
    pub lock_renew_every: Option<Duration>,
    /// Where it was written, for error messages; `None` in code.
    written_at: Option<Place>,
}

/// The times of one singleton's lock, as far as they were configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockTimes {
    /// See [`Config::lock_lease`].
    pub lock_lease: Option<Duration>,
    /// See [`Config::lock_renew_every`].
    pub lock_renew_every: Option<Duration>,
    /// See [`Config::lock_try_timeout`].
    pub lock_try_timeout: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            transports: BTreeMap::new(),
            locks: None,
            locks_reach: None,
            namespace: None,
            lock_lease: None,
            lock_renew_every: None,
            lock_try_timeout: None,
            on_overrun: OnOverrun::Log,
            on_store_down: OnStoreDown::Wait,
            store_wait_limit: None,
            warn_unread_after: Duration::from_secs(24 * 3600),
            shutdown_grace_period: Duration::from_secs(30),
            health: None,
            alive: None,
            throttle: None,
            throttle_per_second: None,
            processors: BTreeMap::new(),
            addresses: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Reads `bus.toml` and the process's `BUS_…` variables.
    ///
    /// # Errors
    /// As of [`Config::read`].
    pub fn from_env() -> Result<Self> {
        Config::read("", std::env::vars_os())
    }

    /// Reads `bus.toml` in `directory`, or whatever file `BUS_CONFIG` names, and then `variables`, which win.
    ///
    /// A program that ships its configuration says `Config::read(env!("CARGO_MANIFEST_DIR"), std::env::vars_os())`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with all that is wrong at once: each unknown key or variable, each value of a wrong type
    /// or out of range, by file and line. A missing file is no error unless `BUS_CONFIG` names it.
    pub fn read<K, V>(
        directory: impl AsRef<Path>,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self>
    where
        K: Into<OsString>,
        V: Into<OsString>,
    {
        // Sorted, so that the same mistakes give the same report.
        let variables: BTreeMap<OsString, OsString> =
            variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let named = variables.get(std::ffi::OsStr::new("BUS_CONFIG")).map(PathBuf::from);
        let path = named.clone().unwrap_or_else(|| directory.as_ref().join("bus.toml"));

        let mut reader = read::Reader::default();
        match std::fs::read(&path) {
            Ok(content) => reader.file(&path.display().to_string(), &content),
            // A link to what is not there is no missing file: somebody has meant one to be read.
            Err(error) if error.kind() == IoErrorKind::NotFound && named.is_none() && !path.is_symlink() => {}
            Err(error) => {
                let (place, hint) = match named {
                    Some(_) => ("variable BUS_CONFIG", "name a file that can be read, or unset the variable"),
                    None => ("the configuration", "make it a file that can be read, or remove it"),
                };
                let path = path.display();
                reader.problem(
                    &Place::Whole(place.to_owned()),
                    format_args!("cannot read {path:?}: {error}; {hint}"),
                );
            }
        }
        for (name, value) in &variables {
            reader.variable(name, value);
        }
        reader.finish()
    }

    /// Adds a transport, or replaces the one of that name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if `name` is no name, [`ErrorKind::Config`] if `url` is no URL.
    pub fn with_transport(mut self, name: &str, url: &str) -> Result<Self> {
        self.transports.insert(Name::new(name)?, StoreUrl::parse(url)?);
        self.addresses.remove(&transport_key(name));
        Ok(self)
    }

    /// Says where the locks are: a URL, or `default` for the store of that transport.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is neither.
    pub fn with_locks(mut self, locks: &str) -> Result<Self> {
        let locks = value::locks(&value::Value::Text(locks.to_owned()));
        self.locks = Some(locks.map_err(|what| Error::new(ErrorKind::Config, format!("locks: {what}")))?);
        self.addresses.remove(LOCKS_KEY);
        Ok(self)
    }

    /// What to call a transport's address in an error message: where it was written (``bus.toml:7: `transports.default` ``),
    /// or else its key.
    pub(crate) fn address_of_transport(&self, name: &str) -> String {
        self.address(transport_key(name))
    }

    /// The same of the locks' address.
    pub(crate) fn address_of_locks(&self) -> String {
        match &self.locks {
            Some(LocksAt::DefaultTransport) => self.address_of_transport(DEFAULT_TRANSPORT),
            _ => self.address(LOCKS_KEY.to_owned()),
        }
    }

    fn address(&self, key: String) -> String {
        self.addresses.get(&key).map_or(key, Place::to_string)
    }

    /// The transports to open. If none was configured: `default` at [`DEFAULT_STORE`], which is then to be said at
    /// start ([`Transports::is_fallback`]), since nobody wrote it down.
    ///
    /// # Errors
    /// Only if the defaults themselves could not be read.
    pub fn transports_in_force(&self) -> Result<Transports> {
        let is_fallback = self.transports.is_empty();
        let urls = if is_fallback {
            BTreeMap::from([(Name::new(DEFAULT_TRANSPORT)?, StoreUrl::parse(DEFAULT_STORE)?)])
        } else {
            self.transports.clone()
        };
        Ok(Transports { urls, is_fallback })
    }

    /// The settings in force for a processor whose code says `in_code`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the configuration tunes what this processor cannot have: on a singleton
    /// `max_concurrent_calls` other than 1 and `prefetch_count` other than 0, elsewhere the lock's times.
    pub fn settings_for(&self, endpoint: &Endpoint, singleton: bool, in_code: Resolved) -> Result<Resolved> {
        let Some(processor) = self.processors.get(endpoint) else { return Ok(in_code) };
        if let Some(why) = processor.misfit(singleton) {
            return Err(Error::new(ErrorKind::Config, format!("{}: {why}", processor.place(endpoint))));
        }
        Ok(processor.settings.over(in_code))
    }

    /// The configured times of a singleton's lock. One that has its own `lock_lease` takes nothing else from the host:
    /// how often to renew is a matter of the lease.
    pub fn lock_times_for(&self, endpoint: &Endpoint) -> LockTimes {
        let own = self.processors.get(endpoint);
        let own_renewal = own.and_then(|own| own.lock_renew_every);
        match own.and_then(|own| own.lock_lease) {
            Some(lease) => {
                LockTimes { lock_lease: Some(lease), lock_renew_every: own_renewal, lock_try_timeout: None }
            }
            None => {
                LockTimes { lock_renew_every: own_renewal.or(self.lock_renew_every), ..self.lock_times() }
            }
        }
    }

    /// The configured times of locks that are no singleton's.
    pub(super) fn lock_times(&self) -> LockTimes {
        LockTimes {
            lock_lease: self.lock_lease,
            lock_renew_every: self.lock_renew_every,
            lock_try_timeout: self.lock_try_timeout,
        }
    }

    /// One error for each processor that is configured but not among `known`, which are those of the binary, in the
    /// order in which they were written.
    pub fn unknown_processors<'e>(&self, known: impl IntoIterator<Item = &'e Endpoint>) -> Vec<Error> {
        let known: Vec<String> = known.into_iter().map(Endpoint::to_string).collect();
        let unknown = self.processors.iter().filter(|(endpoint, _)| !known.contains(&endpoint.to_string()));
        let mut unknown: Vec<_> = unknown.collect();
        unknown.sort_by_key(|(_, processor)| processor.written_at.as_ref().map(Place::rank));
        unknown.into_iter().map(|(endpoint, processor)| processor.unknown(endpoint, &known)).collect()
    }
}

/// The transports that a host opens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Transports {
    /// By name.
    pub urls: BTreeMap<Name, StoreUrl>,
    /// Nothing was configured, so that this is [`DEFAULT_STORE`].
    pub is_fallback: bool,
}

impl ProcessorConfig {
    /// Where it was written (`bus.toml:7: …`), for error messages; `None` in code.
    pub fn written_at(&self) -> Option<String> {
        self.written_at.as_ref().map(Place::to_string)
    }

    /// What to call it in an error message.
    fn place(&self, endpoint: &Endpoint) -> String {
        self.written_at().unwrap_or_else(|| format!("processor {endpoint}"))
    }

    fn misfit(&self, singleton: bool) -> Option<String> {
        match singleton {
            true => [Setting::MaxConcurrentCalls, Setting::PrefetchCount]
                .into_iter()
                .find_map(|setting| self.settings.why_no_singleton(setting))
                .map(|why| format!("{why}; remove it")),
            false => (self.lock_lease.is_some() || self.lock_renew_every.is_some()).then(|| {
                "lock_lease and lock_renew_every are those of a singleton's lock, and it is none; the claim on a message is `lease`".to_owned()
            }),
        }
    }

    fn unknown(&self, endpoint: &Endpoint, known: &[String]) -> Error {
        let place = self.place(endpoint);
        let hint = match closest(&endpoint.to_string(), known.iter().map(String::as_str)) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None if known.is_empty() => "there are none".to_owned(),
            None => format!("there are {}", known.join(", ")),
        };
        Error::new(ErrorKind::Config, format!("{place}: no such processor in this program; {hint}"))
    }
}

impl fmt::Display for LocksAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocksAt::Url(url) => url.fmt(f),
            LocksAt::DefaultTransport => f.write_str(DEFAULT_TRANSPORT),
        }
    }
}

/// What is in force for the host as a whole, one `key = value` a line, for the start-up's report.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |time: Option<Duration>| time.map(write_duration);
        for (name, url) in &self.transports {
            writeln!(f, "transports.{name} = {url}")?;
        }
        if self.transports.is_empty() {
            writeln!(
                f,
                "transports.{DEFAULT_TRANSPORT} = {DEFAULT_STORE} (nothing is configured: the default)"
            )?;
        }
        let optional = [
            ("locks", self.locks.as_ref().map(LocksAt::to_string)),
            ("locks_reach", self.locks_reach.map(|reach| reach.to_string())),
            ("namespace", self.namespace.as_ref().map(Name::to_string)),
            ("lock_lease", time(self.lock_lease)),
            ("lock_renew_every", time(self.lock_renew_every)),
            ("lock_try_timeout", time(self.lock_try_timeout)),
            ("store_wait_limit", time(self.store_wait_limit)),
            ("health", self.health.map(|address| address.to_string())),
            ("alive", self.alive.map(|address| address.to_string())),
            ("throttle", self.throttle.map(|limit| limit.to_string())),
            ("throttle_per_second", self.throttle_per_second.map(|limit| limit.to_string())),
        ];
        for (key, value) in optional.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            writeln!(f, "{key} = {value}")?;
        }
        writeln!(f, "on_overrun = {}", self.on_overrun)?;
        writeln!(f, "on_store_down = {}", self.on_store_down)?;
        writeln!(f, "warn_unread_after = {}", write_duration(self.warn_unread_after))?;
        write!(f, "shutdown_grace_period = {}", write_duration(self.shutdown_grace_period))
    }
}
