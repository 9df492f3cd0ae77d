//! What sends the requests of Azure's client.
//!
//! The client could bring its own, but that one panics where a system has no certificates, and its errors show a
//! request's whole address, with the signature in it. Sockets belong to the runtime on which a request is made: for
//! locks, that is the keeper's.

use std::sync::Arc;
use std::time::Duration;

use azure_core::error::{Error as ClientError, ErrorKind as ClientErrorKind};
use azure_core::http::headers::{HeaderName, HeaderValue, Headers};
use azure_core::http::{
    AsyncRawResponse, Body, ClientOptions, HttpClient, Request, RetryOptions, Transport, Url,
};

use super::credential::{Account, Credential, Endpoint};
use super::error::error;
use super::shared_key::SharedKey;
use crate::error::{ErrorKind, Result};

/// For how long a connection to an emulator is used again.
const EMULATORS_PATIENCE: Duration = Duration::from_secs(3);

/// Sends requests. It never follows a redirection, which Azure does not use, and never tries again by itself.
#[derive(Debug)]
pub(super) struct Http(reqwest::Client);

impl Http {
    /// For requests to `endpoint`. Connects to nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there are no certificates to check the service's by.
    pub(super) fn new(endpoint: &Endpoint) -> Result<Self> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never());
        if endpoint.is_plain() {
            // Needs none, and so should not fail for want of one. The emulator hangs up after five idle seconds, and
            // what is sent in that moment would be lost.
            builder = builder.tls_certs_only([]).pool_idle_timeout(EMULATORS_PATIENCE);
        }
        if endpoint.is_loopback() {
            builder = builder.no_proxy();
        }
        match builder.build() {
            Ok(client) => Ok(Http(client)),
            Err(cause) => Err(error(
                ErrorKind::Config,
                "no TLS: check that this system has its certificates installed (the package ca-certificates)",
            )
            .caused_by(cause.without_url())),
        }
    }
}

/// How a client of Azure's signs its requests and sends them; `url` gets the signature that goes with each address.
///
/// # Errors
/// As of [`Http::new`].
pub(super) fn options(account: &Account, url: &mut Url) -> Result<ClientOptions> {
    let mut options = ClientOptions {
        // Its own would outlast a lease.
        retry: RetryOptions::none(),
        transport: Some(Transport::new(Arc::new(Http::new(&account.endpoint)?))),
        ..ClientOptions::default()
    };
    match &account.credential {
        Credential::Key { account, key } => {
            options.per_try_policies.push(Arc::new(SharedKey::new(account, key)));
        }
        Credential::Sas(sas) => url.set_query(Some(sas.secret())),
    }
    Ok(options)
}

#[async_trait::async_trait]
impl HttpClient for Http {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let method = reqwest::Method::from_bytes(request.method().as_str().as_bytes())
            .map_err(|cause| ClientError::with_error(ClientErrorKind::Other, cause, "an unknown method"))?;
        let Body::Bytes(body) = request.body() else {
            return Err(ClientError::with_message(
                ClientErrorKind::Other,
                "bodies of this backend are no streams",
            ));
        };
        let mut sending = self.0.request(method, request.url().clone()).body(body.clone());
        for (name, value) in request.headers().iter() {
            sending = sending.header(name.as_str(), value.as_str());
        }
        let answer = sending.send().await.map_err(broken)?;
        let (status, headers) = (answer.status().as_u16(), headers(answer.headers()));
        let body = answer.bytes().await.map_err(broken)?;
        Ok(AsyncRawResponse::from_bytes(status.into(), headers, body))
    }
}

fn broken(cause: reqwest::Error) -> ClientError {
    let kind = if cause.is_builder() {
        ClientErrorKind::Other
    } else if cause.is_connect() {
        // Nothing of the request has left this machine.
        ClientErrorKind::Connection
    } else {
        ClientErrorKind::Io
    };
    ClientError::with_error(kind, cause.without_url(), "the request or its answer was broken off")
}

fn headers(map: &reqwest::header::HeaderMap) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in map {
        // Nothing that is read here is written otherwise.
        if let Ok(value) = value.to_str() {
            headers.insert(HeaderName::from(name.as_str().to_owned()), HeaderValue::from(value.to_owned()));
        }
    }
    headers
}
