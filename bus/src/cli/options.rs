//! Which stores are meant: what the options say, else what the configuration says.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::contract::StoreUrl;
use crate::error::{Error, ErrorKind, Result};
use crate::host::config::{Config, DEFAULT_TRANSPORT, LocksAt};
use crate::message::Name;

/// The options that every command has.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Options {
    /// Reads this configuration file instead of bus.toml
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Looks into this store, called `default`, instead of the configuration's transports
    #[arg(long, global = true, value_name = "URL")]
    store: Option<Address>,
    /// Looks for locks there instead of where the configuration says; `default` is the default transport's store
    #[arg(long, global = true, value_name = "URL")]
    locks: Option<Address>,
    /// Writes one JSON object a line, for programs
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// A store's address as it was typed. Read later than clap would, and never shown: it may hold a password.
#[derive(Clone)]
struct Address(String);

impl From<String> for Address {
    fn from(text: String) -> Self {
        Address(text)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Options {
    /// The stores of messages, by the names of their transports. With `--store` no configuration is read, so that a
    /// broken one is no obstacle.
    pub(super) fn transports(&self) -> Result<BTreeMap<Name, StoreUrl>> {
        let config = match &self.store {
            Some(_) => self.override_in(Config::default())?,
            None => self.configuration()?,
        };
        Ok(config.transports_in_force()?.urls)
    }

    /// The store of locks. With `--locks` no configuration is read, unless that is `default`.
    pub(super) fn locks(&self) -> Result<StoreUrl> {
        let config = match &self.locks {
            Some(_) => self.override_in(Config::default())?,
            None => self.override_in(self.configuration()?)?,
        };
        match config.locks {
            Some(LocksAt::Url(url)) => Ok(url),
            Some(LocksAt::DefaultTransport) => self.default_store(),
            None => Err(Error::new(
                ErrorKind::Config,
                "nothing says where the locks are: give --locks URL (or --locks default), or configure `locks`",
            )),
        }
    }

    /// The configuration with what the options say instead.
    pub(super) fn host(&self) -> Result<Config> {
        self.override_in(self.configuration()?)
    }

    fn default_store(&self) -> Result<StoreUrl> {
        let default = self.transports()?.into_iter().find(|(name, _)| name.as_str() == DEFAULT_TRANSPORT);
        default.map(|(_, url)| url).ok_or_else(|| {
            Error::new(
                ErrorKind::Config,
                "the locks are in the store of the transport `default`, and there is none",
            )
        })
    }

    fn override_in(&self, mut config: Config) -> Result<Config> {
        if let Some(Address(url)) = &self.store {
            config.transports.clear();
            config = config
                .with_transport(DEFAULT_TRANSPORT, url)
                .map_err(|error| error.with("option", "--store"))?;
        }
        if let Some(Address(address)) = &self.locks {
            config.locks = Some(locks_at(address).map_err(|error| error.with("option", "--locks"))?);
        }
        Ok(config)
    }

    fn configuration(&self) -> Result<Config> {
        match &self.config {
            Some(file) => read(file),
            None => Config::from_env(),
        }
    }
}

fn locks_at(address: &str) -> Result<LocksAt> {
    match address {
        DEFAULT_TRANSPORT => Ok(LocksAt::DefaultTransport),
        url => StoreUrl::parse(url).map(LocksAt::Url),
    }
}

/// Reads `file` in the place of the one that `BUS_CONFIG` names.
fn read(file: &Path) -> Result<Config> {
    std::fs::File::open(file).map_err(|error| {
        Error::new(ErrorKind::Config, "the configuration cannot be read")
            .with("option", "--config")
            .with("file", file.display())
            .caused_by(error)
    })?;
    let named = (OsString::from("BUS_CONFIG"), file.as_os_str().to_owned());
    let others = std::env::vars_os().filter(|(name, _)| *name != named.0);
    Config::read("", others.chain([named.clone()]))
}
