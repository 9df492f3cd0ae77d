//! Azure's connection strings: `DefaultEndpointsProtocol=https;AccountName=…;AccountKey=…;EndpointSuffix=…`.

use super::credential::{Account, Credential, Endpoint};
use super::error::error;
use crate::error::{Error, ErrorKind, Result};

/// A service of an account.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Service {
    Blobs,
    Queues,
}

impl Service {
    /// What it is called in the names of hosts.
    const fn label(self) -> &'static str {
        match self {
            Service::Blobs => "blob",
            Service::Queues => "queue",
        }
    }

    /// The emulator's port.
    const fn port(self) -> u16 {
        match self {
            Service::Blobs => 10000,
            Service::Queues => 10001,
        }
    }
}

/// The parts that mean something for blobs and queues.
#[derive(Default)]
struct Parts<'t> {
    protocol: Option<&'t str>,
    account: Option<&'t str>,
    key: Option<&'t str>,
    sas: Option<&'t str>,
    suffix: Option<&'t str>,
    blobs: Option<&'t str>,
    queues: Option<&'t str>,
    development: Option<&'t str>,
    proxy: Option<&'t str>,
}

/// Parts that are there for others.
const FOR_OTHERS: &[&str] = &[
    "TableEndpoint",
    "FileEndpoint",
    "DfsEndpoint",
    "WebEndpoint",
    "BlobSecondaryEndpoint",
    "QueueSecondaryEndpoint",
    "TableSecondaryEndpoint",
    "FileSecondaryEndpoint",
];

/// The emulator's account. It is no secret: every emulator has it.
const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";
const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Reads the blob service of a connection string.
///
/// # Errors
/// [`ErrorKind::Config`], saying which part is missing or wrong. No part's value is repeated.
pub(super) fn blobs(text: &str) -> Result<Account> {
    service(text, Service::Blobs)
}

/// Reads the queue service of a connection string.
///
/// # Errors
/// As of [`blobs`].
pub(super) fn queues(text: &str) -> Result<Account> {
    service(text, Service::Queues)
}

fn service(text: &str, service: Service) -> Result<Account> {
    let parts = Parts::read(text)?;
    if let Some(development) = parts.development {
        return match development.eq_ignore_ascii_case("true") {
            true => parts.emulator(service),
            false => Err(bad("UseDevelopmentStorage can only be true: leave it out")),
        };
    }
    let credential = match (parts.account, parts.key, parts.sas) {
        (_, Some(_), Some(_)) => {
            return Err(bad("it has both AccountKey and SharedAccessSignature: leave one out"));
        }
        (Some(account), Some(key), None) => Credential::key(account, key)?,
        (None, Some(_), None) => return Err(bad("it has AccountKey but no AccountName")),
        (_, None, Some(sas)) => Credential::sas(sas)?,
        (_, None, None) => {
            return Err(bad(
                "it has neither AccountKey nor SharedAccessSignature: copy it whole from the account's access keys",
            ));
        }
    };
    let endpoint = parts.endpoint(service)?;
    if matches!(credential, Credential::Sas(_)) && endpoint.is_plain() && !endpoint.is_loopback() {
        return Err(bad(
            "over http anybody on the way can read the SharedAccessSignature: write https, or for an emulator on another host azblob://HOST/CONTAINER?…&protocol=http, or azqueue://HOST/PREFIX?…&protocol=http",
        ));
    }
    Ok(Account { endpoint, credential })
}

impl<'t> Parts<'t> {
    fn read(text: &'t str) -> Result<Self> {
        let mut parts = Parts::default();
        for (number, part) in text.split(';').map(str::trim).filter(|part| !part.is_empty()).enumerate() {
            let (name, value) = part.split_once('=').ok_or_else(|| unknown(number))?;
            let place = match name.to_ascii_lowercase().as_str() {
                "defaultendpointsprotocol" => &mut parts.protocol,
                "accountname" => &mut parts.account,
                "accountkey" => &mut parts.key,
                "sharedaccesssignature" => &mut parts.sas,
                "endpointsuffix" => &mut parts.suffix,
                "blobendpoint" => &mut parts.blobs,
                "queueendpoint" => &mut parts.queues,
                "usedevelopmentstorage" => &mut parts.development,
                "developmentstorageproxyuri" => &mut parts.proxy,
                other if FOR_OTHERS.iter().any(|known| known.eq_ignore_ascii_case(other)) => continue,
                _ => return Err(unknown(number)),
            };
            if value.is_empty() || place.replace(value).is_some() {
                return Err(bad("a part is empty or stands twice").with("part", number + 1));
            }
        }
        Ok(parts)
    }

    fn endpoint(&self, service: Service) -> Result<Endpoint> {
        let given = match service {
            Service::Blobs => self.blobs,
            Service::Queues => self.queues,
        };
        if let Some(given) = given {
            return Endpoint::parse(given);
        }
        let account = self.account.ok_or_else(|| {
            bad(match service {
                Service::Blobs => "it has neither BlobEndpoint nor AccountName",
                Service::Queues => "it has neither QueueEndpoint nor AccountName",
            })
        })?;
        let (protocol, suffix) =
            (self.protocol.unwrap_or("https"), self.suffix.unwrap_or("core.windows.net"));
        Endpoint::parse(&format!("{protocol}://{account}.{}.{suffix}", service.label()))
    }

    fn emulator(&self, service: Service) -> Result<Account> {
        let host = self.proxy.unwrap_or("http://127.0.0.1").trim_end_matches('/');
        Ok(Account {
            endpoint: Endpoint::parse(&format!("{host}:{}/{DEVELOPMENT_ACCOUNT}", service.port()))?,
            credential: Credential::key(DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY)?,
        })
    }
}

fn unknown(number: usize) -> Error {
    bad("a part is none of those there are: DefaultEndpointsProtocol, AccountName, AccountKey, SharedAccessSignature, EndpointSuffix, BlobEndpoint, QueueEndpoint, UseDevelopmentStorage, DevelopmentStorageProxyUri, each written Name=value, with semicolons between")
        .with("part", number + 1)
}

fn bad(message: &'static str) -> Error {
    error(ErrorKind::Config, format!("the connection string cannot be used: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "c2VjcmV0LXNlY3JldA==";

    fn read(text: &str) -> Account {
        blobs(&text.replace("KEY", KEY)).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_signature_is_not_sent_unencrypted_to_another_host() {
        for remote in [
            "BlobEndpoint=http://blob.example.com/;SharedAccessSignature=sp=rcwl&sig=KEY",
            "DefaultEndpointsProtocol=http;AccountName=shop;SharedAccessSignature=sp=rcwl&sig=KEY",
        ] {
            let error = blobs(&remote.replace("KEY", KEY)).unwrap_err();
            let shown = format!("{error:?}");
            assert!(shown.contains("https") && !shown.contains(KEY), "{remote}: {shown}");
        }
        let here = "BlobEndpoint=http://127.0.0.1:10000/shop;SharedAccessSignature=sp=rcwl&sig=KEY";
        assert!(read(here).endpoint.is_plain());
    }

    #[test]
    fn the_blob_service_is_found() {
        for (text, endpoint, plain) in [
            ("AccountName=shop;AccountKey=KEY", "shop.blob.core.windows.net/", false),
            (
                "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=KEY;EndpointSuffix=core.chinacloudapi.cn;",
                "shop.blob.core.chinacloudapi.cn/",
                false,
            ),
            (
                "defaultendpointsprotocol=http; accountname=shop; accountkey=KEY",
                "shop.blob.core.windows.net/",
                true,
            ),
            (
                "AccountName=shop;AccountKey=KEY;BlobEndpoint=http://127.0.0.1:4711/shop;QueueEndpoint=http://127.0.0.1:4712/shop",
                "127.0.0.1:4711/shop/",
                true,
            ),
            (
                "BlobEndpoint=https://shop.blob.core.windows.net/;SharedAccessSignature=sv=2024-01-01&sp=rcwl&sig=KEY",
                "shop.blob.core.windows.net/",
                false,
            ),
            ("UseDevelopmentStorage=true", "127.0.0.1:10000/devstoreaccount1/", true),
            (
                "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite",
                "azurite:10000/devstoreaccount1/",
                true,
            ),
        ] {
            let account = read(text);
            assert_eq!(
                (account.endpoint.to_string().as_str(), account.endpoint.is_plain()),
                (endpoint, plain),
                "{text}"
            );
        }
    }

    #[test]
    fn the_queue_service_is_found_beside_it() {
        for (text, endpoint) in [
            ("AccountName=shop;AccountKey=KEY", "shop.queue.core.windows.net/"),
            (
                "AccountName=shop;AccountKey=KEY;BlobEndpoint=http://127.0.0.1:4711/shop;QueueEndpoint=http://127.0.0.1:4712/shop",
                "127.0.0.1:4712/shop/",
            ),
            ("UseDevelopmentStorage=true", "127.0.0.1:10001/devstoreaccount1/"),
        ] {
            assert_eq!(queues(&text.replace("KEY", KEY)).unwrap().endpoint.to_string(), endpoint, "{text}");
        }
        let no_queues = "BlobEndpoint=https://shop.blob.core.windows.net/;SharedAccessSignature=sig=KEY";
        assert!(queues(no_queues).unwrap_err().to_string().contains("QueueEndpoint"));
    }

    #[test]
    fn a_key_keeps_its_equals_signs() {
        let account = read("AccountName=shop;AccountKey=KEY");
        assert!(
            matches!(account.credential, Credential::Key { account, key } if account == "shop" && key.secret() == KEY)
        );
    }

    #[test]
    fn what_is_wrong_is_named_without_a_value() {
        for (text, named) in [
            ("", "AccountKey"),
            ("AccountName=shop", "AccountKey"),
            ("AccountKey=KEY", "AccountName"),
            ("SharedAccessSignature=sig=KEY", "BlobEndpoint"),
            ("AccountName=shop;AccountKey=KEY;SharedAccessSignature=sig=KEY", "both"),
            ("AcountName=shop;AccountKey=KEY", "part: 1"),
            ("AccountName=shop;KEY", "part: 2"),
            ("AccountName=shop;AccountKey=KEY;AccountKey=KEY", "part: 3"),
            ("AccountName=;AccountKey=KEY", "part: 1"),
            ("AccountName=shop;AccountKey=not-KEY", "Base64"),
            ("AccountName=shop;AccountKey=KEY;BlobEndpoint=https://shop?sig=KEY", "parameters"),
            ("UseDevelopmentStorage=false", "UseDevelopmentStorage"),
        ] {
            let error = blobs(&text.replace("KEY", KEY)).unwrap_err();
            let told = format!("{error:?}");
            assert!(error.kind() == ErrorKind::Config && told.contains(named), "{text}: {told}");
            assert!(!told.contains("c2Vjc"), "{told}");
        }
    }
}
