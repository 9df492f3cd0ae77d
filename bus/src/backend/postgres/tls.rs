//! Encrypted connections, by rustls.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::error;
use crate::error::{Error, ErrorKind, Result};

/// What connects so that the server's certificate must be of a trusted root and of the host's name: the system's
/// roots, or those in a PEM file.
pub(super) fn connector(roots: Option<&Path>) -> Result<MakeRustlsConnect> {
    let mut trusted = RootCertStore::empty();
    for certificate in certificates(roots)? {
        // The system may have some that are no good; what matters is that there are others.
        let _ = trusted.add(certificate);
    }
    if trusted.is_empty() {
        return Err(bad("there is no certificate to be trusted: name a PEM file by sslrootcert=…", roots));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| bad("TLS cannot be set up", roots).caused_by(e))?
        .with_root_certificates(trusted)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn certificates(roots: Option<&Path>) -> Result<Vec<CertificateDer<'static>>> {
    let Some(file) = roots else { return Ok(rustls_native_certs::load_native_certs().certs) };
    CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|e| bad("the certificates cannot be read", roots).caused_by(e))
}

fn bad(message: &'static str, roots: Option<&Path>) -> Error {
    let bad = error(ErrorKind::Config, message);
    match roots {
        Some(file) => bad.with("sslrootcert", file.display()),
        None => bad,
    }
}
