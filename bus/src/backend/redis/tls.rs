//! Opening the driver, with TLS by rustls for `rediss://`.

use redis::{Client, RedisResult};

use super::config::Config;
use super::error::error;
use crate::error::{ErrorKind, Result};

/// The driver for a store's server. Nothing is connected yet.
///
/// # Errors
/// [`ErrorKind::Config`] if the file with the authority's certificate cannot be read or used.
pub(super) fn client(config: &Config) -> Result<Client> {
    open(config)?.map_err(|cause| {
        error(ErrorKind::Config, "the driver cannot be opened")
            .with("server", &config.server)
            .caused_by(cause)
    })
}

#[cfg(not(feature = "redis-tls"))]
fn open(config: &Config) -> Result<RedisResult<Client>> {
    Ok(Client::open(config.connection.clone()))
}

#[cfg(feature = "redis-tls")]
fn open(config: &Config) -> Result<RedisResult<Client>> {
    if !config.is_encrypted {
        return Ok(Client::open(config.connection.clone()));
    }
    // The driver takes the process's own choice. Where somebody has made one already, it stands.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let root_cert = match &config.authority {
        None => None,
        Some(file) => Some(std::fs::read(file).map_err(|cause| {
            error(ErrorKind::Config, "the certificate of the authority cannot be read")
                .with("ca", file.display())
                .caused_by(cause)
        })?),
    };
    let certificates = redis::TlsCertificates { client_tls: None, root_cert };
    Ok(Client::build_with_tls(config.connection.clone(), certificates))
}
