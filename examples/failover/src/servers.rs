//! The servers that the driver starts for an experiment, and what its processes need to reach them and others.

use anyhow::{Context, Result, bail};

use crate::stores::{Asked, Kind};

/// Where the bus looks for the credentials of Azure Storage.
const CONNECTION_STRING: &str = "BUS_AZURE_CONNECTION_STRING";

/// A server of the driver's own. It ends when this is dropped.
#[derive(Debug)]
enum Server {
    #[cfg(feature = "azure_storage")]
    Azurite(Box<bus_emulators::Azurite>),
    #[cfg(feature = "postgres")]
    Postgres(bus_emulators::postgres::Postgres),
    #[cfg(feature = "redis")]
    Redis(bus_emulators::redis::Redis),
    #[cfg(feature = "nats")]
    Nats(bus_emulators::nats::Nats),
}

/// All of them.
#[derive(Debug, Default)]
pub struct Servers(Vec<Server>);

impl Servers {
    /// Starts what these stores need that have no address yet.
    ///
    /// # Errors
    /// When a server does not start, this build does not have the backend, or the environment does not say which account
    /// the blobs are in.
    pub fn for_stores(stores: &[Asked]) -> Result<Self> {
        let mut servers = Self::default();
        for asked in stores {
            check_built(asked.kind())?;
            match asked {
                Asked::At(kind, url) => check_environment(*kind, url)?,
                Asked::Own(kind) if servers.url_of(*kind).is_some() => {}
                Asked::Own(kind) => servers.0.push(start(*kind)?),
            }
        }
        Ok(servers)
    }

    fn url_of(&self, kind: Kind) -> Option<String> {
        self.0.iter().find_map(|server| server.url_of(kind))
    }

    /// The URL of a store.
    ///
    /// # Errors
    /// When it is on a server that was not started.
    pub fn url(&self, asked: &Asked) -> Result<String> {
        match asked {
            Asked::At(_, url) => Ok(url.clone()),
            Asked::Own(kind) => {
                self.url_of(*kind).with_context(|| format!("there is no server for {kind:?}"))
            }
        }
    }

    /// The account in Azure, or the emulator in its place.
    pub fn connection_string(&self) -> Option<String> {
        let own = self.environment().into_iter().find(|(name, _)| *name == CONNECTION_STRING);
        own.map(|(_, value)| value).or_else(|| std::env::var(CONNECTION_STRING).ok())
    }

    /// What has to stand in the environment of the processes, besides what stands in that of the driver. Not on their
    /// command lines, which everybody can read.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        self.0.iter().filter_map(Server::environment).collect()
    }
}

impl Server {
    /// The URL of what this kind of store is called on this server, if it has such.
    fn url_of(&self, kind: Kind) -> Option<String> {
        match (self, kind) {
            // In an emulator that nobody else uses. Messages are asked for as often as a busy fleet would.
            #[cfg(feature = "azure_storage")]
            (Self::Azurite(_), Kind::Queues) => Some("azqueue://failover?poll=1s".to_owned()),
            #[cfg(feature = "azure_storage")]
            (Self::Azurite(_), Kind::Blobs) => Some("azblob://failover".to_owned()),
            #[cfg(feature = "postgres")]
            (Self::Postgres(server), Kind::Postgres) => Some(server.url()),
            #[cfg(feature = "redis")]
            (Self::Redis(server), Kind::Redis) => Some(server.url()),
            #[cfg(feature = "nats")]
            (Self::Nats(server), Kind::Nats) => Some(server.url()),
            _ => None,
        }
    }

    fn environment(&self) -> Option<(&'static str, String)> {
        match *self {
            #[cfg(feature = "azure_storage")]
            Self::Azurite(ref azurite) => Some((CONNECTION_STRING, azurite.connection_string())),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => None,
            #[cfg(feature = "redis")]
            Self::Redis(_) => None,
            #[cfg(feature = "nats")]
            Self::Nats(_) => None,
        }
    }
}

fn start(kind: Kind) -> Result<Server> {
    match kind {
        #[cfg(feature = "azure_storage")]
        Kind::Queues | Kind::Blobs => Ok(Server::Azurite(Box::new(bus_emulators::Azurite::start()?))),
        #[cfg(feature = "postgres")]
        Kind::Postgres => Ok(Server::Postgres(bus_emulators::postgres::Postgres::start()?)),
        #[cfg(feature = "redis")]
        Kind::Redis => Ok(Server::Redis(bus_emulators::redis::Redis::start()?)),
        #[cfg(feature = "nats")]
        Kind::Nats => Ok(Server::Nats(bus_emulators::nats::Nats::start()?)),
        _ => bail!("{kind:?} needs no server"),
    }
}

/// Refuses what this build cannot reach, before anything is started.
fn check_built(kind: Kind) -> Result<()> {
    let (feature, is_there) = match kind {
        Kind::Sqlite | Kind::Directory => return Ok(()),
        Kind::Postgres => ("postgres", cfg!(feature = "postgres")),
        Kind::Redis => ("redis", cfg!(feature = "redis")),
        Kind::Nats => ("nats", cfg!(feature = "nats")),
        Kind::Queues | Kind::Blobs => ("azure_storage", cfg!(feature = "azure_storage")),
    };
    if !is_there {
        bail!("this build has no {feature}: run it with --features {feature}, or --all-features");
    }
    Ok(())
}

fn check_environment(kind: Kind, url: &str) -> Result<()> {
    if matches!(kind, Kind::Queues | Kind::Blobs) && std::env::var_os(CONNECTION_STRING).is_none() {
        bail!("{url} needs the account's connection string in {CONNECTION_STRING}");
    }
    Ok(())
}
