//! How a URL finds its backend: each backend registers the schemes it answers to, so that there is no central list.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use super::{BoxFuture, LeaseRange, LockManager, Reach, Transport};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// A store's address: `scheme://rest?name=value&…`. Never shows credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    scheme: String,
    rest: String,
    params: BTreeMap<String, String>,
}

impl StoreUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there is no scheme, or a parameter has no value or stands twice.
    pub fn parse(text: &str) -> Result<Self> {
        // What is no scheme is not shown either: connection strings hold their key before the first `://`.
        let split = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme));
        let bad = |why: &str| {
            let shown = split.map_or(String::new(), |(scheme, _)| format!(" {scheme}://…"));
            Error::new(ErrorKind::Config, format!("the store URL{shown} cannot be read: {why}"))
        };
        let (scheme, rest) =
            split.ok_or_else(|| bad("it has no scheme; a SQLite file is written sqlite://bus.db"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut params = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| bad("each parameter is written name=value"))?;
            if params.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(bad("a parameter stands twice"));
            }
        }
        Ok(StoreUrl { scheme: scheme.to_ascii_lowercase(), rest: rest.to_owned(), params })
    }

    /// What stands before `://`, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// What stands between `://` and `?`. May hold credentials: do not print it, print the URL.
    pub fn rest(&self) -> &str {
        &self.rest
    }

    /// The parameters, by name.
    pub fn params(&self) -> &BTreeMap<String, String> {
        &self.params
    }

    /// The number that a parameter says, within that range; `default` if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is none, or out of range.
    ///
    /// ```
    /// let url = bus::contract::StoreUrl::parse("nats://localhost?replicas=3")?;
    /// assert_eq!(url.number("replicas", 1, 1..=5)?, 3);
    /// assert_eq!(url.number("timeout", 5_000, 100..=60_000)?, 5_000);
    /// assert!(url.number("replicas", 1, 1..=2).is_err());
    /// # Ok::<(), bus::Error>(())
    /// ```
    pub fn number<N: FromStr + PartialOrd + fmt::Display>(
        &self,
        name: &'static str,
        default: N,
        range: RangeInclusive<N>,
    ) -> Result<N> {
        let Some(value) = self.params.get(name) else { return Ok(default) };
        value.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            let (smallest, largest) = (range.start(), range.end());
            let text = format!("{}://: {name} is a number from {smallest} to {largest}", self.scheme);
            Error::new(ErrorKind::Config, text).with(name, value)
        })
    }

    /// What the parameter `reach` says, for stores that reach as far as the place they lie in: `None` if there is none.
    pub fn stated_reach(&self) -> Option<Reach> {
        [Reach::Process, Reach::Machine, Reach::Fleet]
            .into_iter()
            .find(|reach| self.params.get("reach").is_some_and(|stated| *stated == reach.to_string()))
    }

    /// Refuses every parameter whose name is not among `known`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], naming those there are, and the unknown one, unless it may be a part of a password that has
    /// an unencoded `?` in it.
    pub fn allow_params(&self, known: &[&str]) -> Result<()> {
        let Some((name, value)) = self.params.iter().find(|(name, _)| !known.contains(&name.as_str())) else {
            return Ok(());
        };
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !value.contains('@');
        let unknown = if plain { format!(" {name:?}") } else { " of that name".to_owned() };
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(Error::new(
            ErrorKind::Config,
            format!("{}:// has no parameter{unknown}; it has {known}", self.scheme),
        ))
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// Shows scheme, host and path; user, password and parameters' values are left out.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = match self.rest.rsplit_once('@') {
            // A connection string in the place of a URL has its key in there.
            None if self.rest.contains(';') => "…".to_owned(),
            None => self.rest.clone(),
            Some((_, rest)) => format!("…@{rest}"),
        };
        write!(f, "{}://{rest}", self.scheme)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a host tells a backend that it opens.
///
/// ```
/// use bus::clock::Clock;
/// use bus::contract::OpenOptions;
///
/// assert!(OpenOptions::new(Clock::system()).create);
/// assert!(!OpenOptions::new(Clock::system()).existing().create);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Where to read the time.
    pub clock: Clock,
    /// Whether a store that is not there is made, as hosts want it. Otherwise opening it answers
    /// [`ErrorKind::NotFound`] and makes none, so that whoever only looks leaves no empty store behind. A store that is
    /// always there, like one in memory, is opened all the same.
    pub create: bool,
}

impl OpenOptions {
    /// Options with this clock; a missing store is made.
    pub fn new(clock: Clock) -> Self {
        OpenOptions { clock, create: true }
    }

    /// The same, but for stores that are there already.
    #[must_use]
    pub fn existing(mut self) -> Self {
        self.create = false;
        self
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions::new(Clock::default())
    }
}

/// Opens a transport.
pub type OpenTransport =
    for<'a> fn(&'a StoreUrl, &'a OpenOptions) -> BoxFuture<'a, Result<Arc<dyn Transport>>>;

/// Opens a lock manager; called on the keeper's runtime.
pub type OpenLocks = for<'a> fn(&'a StoreUrl, &'a OpenOptions) -> BoxFuture<'a, Result<Arc<dyn LockManager>>>;

/// A URL scheme and what opens it. A backend submits one with `inventory::submit!`.
#[derive(Clone, Copy)]
pub struct Scheme {
    /// What stands before `://`.
    pub name: &'static str,
    /// How far its messages and locks reach, unless the URL [states](StoreUrl::stated_reach) it: known before anything is
    /// connected, so that the wiring can be checked in a unit test.
    pub reach: Reach,
    /// The leases that its locks take, known before anything is connected as well.
    pub leases: LeaseRange,
    /// Opens a transport; `None` if the backend is no transport.
    pub transport: Option<OpenTransport>,
    /// Opens a lock manager; `None` if the backend has none.
    pub locks: Option<OpenLocks>,
}

inventory::collect!(Scheme);

impl Scheme {
    /// The scheme of that name.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if no backend of this binary answers to it, naming those that are there.
    pub fn find(name: &str) -> Result<&'static Scheme> {
        if let Some(found) = inventory::iter::<Scheme>.into_iter().find(|scheme| scheme.name == name) {
            return Ok(found);
        }
        let mut known: Vec<_> = inventory::iter::<Scheme>.into_iter().map(|scheme| scheme.name).collect();
        known.sort_unstable();
        Err(Error::new(
            ErrorKind::Config,
            format!(
                "no backend for {name}:// in this binary; there {} {}. Each backend is a feature of `bus`: `sqlite`, `postgres`, `redis`, `file`, …, and `azure_storage` for azqueue:// and azblob://",
                if known.len() == 1 { "is" } else { "are" },
                known.join(", ")
            ),
        ))
    }
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheme")
            .field("name", &self.name)
            .field("reach", &self.reach)
            .field("leases", &self.leases)
            .field("transport", &self.transport.is_some())
            .field("locks", &self.locks.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_never_shows_its_credentials() {
        let url = StoreUrl::parse("postgres://user:s3cret@host/db?sslkey=s3cret").unwrap();
        assert_eq!(format!("{url} {url:?}"), "postgres://…@host/db postgres://…@host/db");
        let error = StoreUrl::parse("postgres://user:s3cret@host/db?oops").unwrap_err();
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }

    #[test]
    fn a_connection_string_with_a_scheme_before_it_is_not_shown() {
        let url = StoreUrl::parse("azblob://AccountName=shop;AccountKey=s3cret").unwrap();
        assert_eq!(format!("{url} {url:?}"), "azblob://… azblob://…");
    }

    #[test]
    fn a_connection_string_is_no_url_and_is_not_shown() {
        let text = "DefaultEndpointsProtocol=http;AccountKey=s3cret;BlobEndpoint=http://127.0.0.1/a";
        let error = StoreUrl::parse(text).unwrap_err();
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }

    #[test]
    fn unknown_parameters_are_refused_by_name() {
        let url = StoreUrl::parse("sqlite://bus.db?sychronous=NORMAL").unwrap();
        let error = url.allow_params(&["synchronous"]).unwrap_err().to_string();
        assert!(error.contains("sychronous") && error.contains("synchronous"), "{error}");
    }
}
