//! Where a service of an account is, and how to sign in to it.

use std::fmt;

use azure_core::credentials::Secret;
use azure_core::http::Url;

use super::error::error;
use crate::error::{Error, ErrorKind, Result};

/// A service of a storage account.
#[derive(Clone, Debug)]
pub(super) struct Account {
    /// Where containers, or queues, are: `https://account.blob.core.windows.net/`, or with a path `http://127.0.0.1:10000/account/`.
    /// Never with credentials in it.
    pub(super) endpoint: Endpoint,
    pub(super) credential: Credential,
}

/// What proves who we are. `Debug` shows no secret.
#[derive(Clone, Debug)]
pub(super) enum Credential {
    /// Signs each request.
    Key { account: String, key: Secret },
    /// A shared access signature: parameters of each request's address, as they were given.
    Sas(Secret),
}

impl Credential {
    /// An account's key, in Base64.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is no key.
    pub(super) fn key(account: &str, key: &str) -> Result<Self> {
        match azure_core::base64::decode(key) {
            Ok(bytes) if !bytes.is_empty() => {
                Ok(Credential::Key { account: account.to_owned(), key: Secret::new(key.to_owned()) })
            }
            _ => Err(bad("AccountKey is no Base64: copy the whole key, with the = at its end")),
        }
    }

    /// A shared access signature: `sv=…&sp=…&sig=…`, with or without a question mark before it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is none.
    pub(super) fn sas(token: &str) -> Result<Self> {
        let token = token.trim_start_matches('?');
        match token.split('&').any(|pair| pair.strip_prefix("sig=").is_some_and(|value| !value.is_empty())) {
            true => Ok(Credential::Sas(Secret::new(token.to_owned()))),
            false => Err(bad("a shared access signature has a parameter `sig`: copy the whole of it")),
        }
    }

    /// What to look at where it is not accepted.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Credential::Key { .. } => {
                "the credentials are not accepted: check AccountName and AccountKey in BUS_AZURE_CONNECTION_STRING, this machine's clock, and that the account's firewall lets this machine in"
            }
            Credential::Sas(_) => {
                "the SAS is not accepted: check its signature (sig), its times (st, se), what it is for (sr, or ss and srt), this machine's clock, and that the account's firewall lets this machine in"
            }
        }
    }
}

/// The address of a service, without credentials.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Endpoint(Url);

impl Endpoint {
    /// Reads `https://host[:port]/[account]`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is no such address. The text is not repeated: it may hold a key.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut url = Url::parse(text).map_err(|_| bad("the service's address is no URL"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
            return Err(bad("the service's address begins with https:// (or http://) and a host"));
        }
        if url.query().is_some()
            || url.fragment().is_some()
            || !url.username().is_empty()
            || url.password().is_some()
        {
            return Err(bad(
                "the service's address has neither user nor parameters: a SAS is given by itself",
            ));
        }
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        Ok(Endpoint(url))
    }

    /// The address of the service itself.
    pub(super) fn service(&self) -> Url {
        let mut url = self.0.clone();
        // Names are added as segments of the path, and what ends with a slash has an empty one already.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty();
        }
        url
    }

    /// The address of a container in it.
    pub(super) fn container(&self, name: &str) -> Url {
        let mut url = self.0.clone();
        let path = format!("{}{name}", url.path());
        url.set_path(&path);
        url
    }

    /// The same account's other service, where hosts are called after services: `shop.queue.…` and `shop.blob.…`.
    pub(super) fn sibling(&self, ours: &str, other: &str) -> Option<Endpoint> {
        let (account, rest) = self.0.host_str()?.split_once('.')?;
        let host = format!("{account}.{other}.{}", rest.strip_prefix(ours)?.strip_prefix('.')?);
        let mut url = self.0.clone();
        url.set_host(Some(&host)).ok()?;
        Some(Endpoint(url))
    }

    /// Whether requests go unencrypted.
    pub(super) fn is_plain(&self) -> bool {
        self.0.scheme() == "http"
    }

    /// Whether it is this machine.
    pub(super) fn is_loopback(&self) -> bool {
        is_loopback(self.0.host_str().unwrap_or_default())
    }
}

/// Host and path: what tells one account's service from another's.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.host_str().unwrap_or_default())?;
        if let Some(port) = self.0.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(self.0.path())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether a host, as it stands in a URL, is this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn bad(message: &'static str) -> Error {
    error(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_called_by_its_host_and_path() {
        for (address, shown) in [
            ("https://Shop.blob.core.windows.net", "shop.blob.core.windows.net/"),
            ("https://shop.blob.core.windows.net:443/", "shop.blob.core.windows.net/"),
            ("http://127.0.0.1:10000/devstoreaccount1", "127.0.0.1:10000/devstoreaccount1/"),
            ("http://[::1]:10000/devstoreaccount1/", "[::1]:10000/devstoreaccount1/"),
        ] {
            assert_eq!(Endpoint::parse(address).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_and_not_shown() {
        for address in [
            "",
            "shop",
            "ftp://shop",
            "https://",
            "https://user:s3cret@shop",
            "https://shop/?sig=s3cret",
            "https://shop#s3cret",
        ] {
            let error = Endpoint::parse(address).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{address}");
            assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "127.0.0.1", "127.8.0.1", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["example.com", "10.0.0.1", "localhost.example.com", "127.0.0.1.nip.io", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn neither_key_nor_signature_is_shown() {
        let credentials = [
            Credential::key("shop", "c2VjcmV0LXNlY3JldA==").unwrap(),
            Credential::sas("?sv=2024-01-01&sig=c2VjcmV0LXNlY3JldA%3D%3D").unwrap(),
        ];
        let shown = format!("{credentials:?} {}", credentials[0].advice());
        assert!(!shown.contains("c2Vjc"), "{shown}");
        for error in
            [Credential::key("shop", "s3cret!").unwrap_err(), Credential::sas("sv=s3cret").unwrap_err()]
        {
            assert!(
                error.kind() == ErrorKind::Config && !format!("{error:?}").contains("s3cret"),
                "{error:?}"
            );
        }
    }
}
