//! The stores that are looked into, and what goes wrong with some of them while others answer.

use std::fmt;
use std::sync::Arc;

use super::options::Options;
use crate::clock::Clock;
use crate::contract::{Inspect, LockManager, OpenOptions, Readers, Scheme, StoreUrl, Transport};
use crate::error::{Error, ErrorKind, Result};
use crate::host::config::closest;
use crate::message::{Endpoint, Name};

/// The stores that could be opened, and why others could not.
pub(super) struct Stores {
    opened: Vec<Arc<Store>>,
    failures: Failures,
}

/// A store that can be looked into.
pub(super) struct Store {
    /// The name of the transport.
    pub(super) transport: Name,
    pub(super) inspect: Arc<dyn Inspect>,
    url: StoreUrl,
    handle: Arc<dyn Transport>,
}

/// An endpoint in a store.
pub(super) struct Place {
    pub(super) store: Arc<Store>,
    pub(super) endpoint: Endpoint,
}

impl Stores {
    /// Opens the stores of all transports, or of the one called `only`.
    pub(super) async fn open(options: &Options, only: Option<&Name>) -> Result<Self> {
        let mut urls = options.transports()?;
        let known: Vec<String> = urls.keys().map(Name::to_string).collect();
        urls.retain(|name, _| only.is_none_or(|only| only == name));
        if let (true, Some(only)) = (urls.is_empty(), only) {
            return Err(Error::new(
                ErrorKind::UnknownTransport,
                format!("no transport is called {only}; there {}", listed(&known)),
            ));
        }
        let mut stores = Stores { opened: Vec::new(), failures: Failures::default() };
        for (transport, url) in urls {
            match Store::open(&transport, &url).await {
                Ok(store) => stores.opened.push(Arc::new(store)),
                Err(error) => stores.failures.add(located(error, &transport, &url)),
            }
        }
        Ok(stores)
    }

    /// Where there are endpoints, or that endpoint; and what could not be found out.
    pub(super) async fn places(&self, only: Option<&Endpoint>) -> (Vec<Place>, Failures) {
        let (mut places, mut failures) = (Vec::new(), self.failures.clone());
        for store in &self.opened {
            match store.inspect.endpoints().await {
                Ok(endpoints) => places.extend(
                    endpoints.into_iter().map(|endpoint| Place { store: Arc::clone(store), endpoint }),
                ),
                Err(error) => failures.add(store.locate(error)),
            }
        }
        if let Some(only) = only {
            let known: Vec<String> = places.iter().map(|place| place.endpoint.to_string()).collect();
            places.retain(|place| place.endpoint == *only);
            if places.is_empty() && failures.is_empty() {
                failures.add(self.unknown(only, &known));
            }
        }
        (places, failures)
    }

    /// The one place of an endpoint.
    pub(super) async fn place(&self, endpoint: &Endpoint) -> Result<Place> {
        let (mut places, failures) = self.places(Some(endpoint)).await;
        failures.into_result()?;
        match (places.pop(), places.len()) {
            (Some(place), 0) => Ok(place),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "{endpoint} is in the stores of several transports: say which one with --transport NAME"
                ),
            )),
        }
    }

    /// The stores that could be opened.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Store> {
        self.opened.iter().map(|store| &**store)
    }

    /// Why others could not.
    pub(super) fn failures(&self) -> Failures {
        self.failures.clone()
    }

    /// The addresses of the opened stores, for people.
    pub(super) fn addresses(&self) -> String {
        self.opened.iter().map(|store| store.url.to_string()).collect::<Vec<_>>().join(", ")
    }

    pub(super) async fn close(self) {
        for store in self.opened {
            store.handle.close().await;
        }
    }

    fn unknown(&self, endpoint: &Endpoint, known: &[String]) -> Error {
        let hint = match closest(&endpoint.to_string(), known.iter().map(String::as_str)) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("there {}", listed(known)),
        };
        Error::new(ErrorKind::NotFound, format!("no endpoint is called {endpoint}; {hint}"))
            .with("store", self.addresses())
    }
}

impl Store {
    async fn open(transport: &Name, url: &StoreUrl) -> Result<Self> {
        let open = Scheme::find(url.scheme())?.transport.ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("{}:// keeps no messages", url.scheme()))
        })?;
        let handle = open(url, &OpenOptions::new(Clock::system()).existing()).await?;
        match handle.capabilities().inspect {
            Some(inspect) => Ok(Store { transport: transport.clone(), inspect, url: url.clone(), handle }),
            None => {
                handle.close().await;
                Err(Error::new(
                    ErrorKind::Unsupported,
                    "the store cannot be looked into: use the tools that come with it",
                ))
            }
        }
    }

    /// Who reads what in it.
    pub(super) fn readers(&self) -> Result<Arc<dyn Readers>> {
        self.handle.capabilities().readers.ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "the store does not tell who reads its subscriptions")
        })
    }

    /// The error with where it happened.
    pub(super) fn locate(&self, error: Error) -> Error {
        located(error, &self.transport, &self.url)
    }
}

fn located(error: Error, transport: &Name, url: &StoreUrl) -> Error {
    error.with("transport", transport).with("store", url)
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "are none".to_owned(),
        [one] => format!("is {one}"),
        several => format!("are {}", several.join(", ")),
    }
}

/// Opens a store of locks.
pub(super) async fn open_locks(url: &StoreUrl) -> Result<Arc<dyn LockManager>> {
    let open = Scheme::find(url.scheme())?
        .locks
        .ok_or_else(|| Error::new(ErrorKind::Unsupported, format!("{}:// keeps no locks", url.scheme())))?;
    open(url, &OpenOptions::new(Clock::system()).existing()).await
}

/// What went wrong, while the rest went on.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures(Vec<Error>);

impl Failures {
    pub(super) fn add(&mut self, error: Error) {
        self.0.push(error);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing if nothing went wrong, else one error that says all of it.
    pub(super) fn into_result(mut self) -> Result<()> {
        match self.0.len() {
            0 => Ok(()),
            1 => Err(self.0.remove(0)),
            count => Err(Error::new(self.0[0].kind(), format!("{count} things went wrong")).caused_by(self)),
        }
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            write!(f, "{}{error:?}", if i == 0 { "" } else { "\n  and: " })?;
        }
        Ok(())
    }
}

impl std::error::Error for Failures {}
