//! What an `azqueue://` URL says.

use std::time::Duration;

use super::super::config::{CONNECTION_STRING, OF_A_SAS, protocol, read_poll, sas_of};
use super::super::connection_string;
use super::super::credential::{Account, Credential, Endpoint};
use super::super::error::error;
use super::name::Prefix;
use crate::contract::StoreUrl;
use crate::error::{Error, ErrorKind, Result};

/// The longest pause of a consumer that finds nothing, unless it is said otherwise: nothing tells of a message, and every
/// question costs money.
pub(in super::super) const POLL: Duration = Duration::from_secs(5);

/// Parameters of ours.
const OURS: [&str; 3] = ["poll", "protocol", "blobs"];

/// Queues to be opened.
#[derive(Clone, Debug)]
pub(in super::super) struct Config {
    pub(super) queues: Account,
    /// Where large bodies are.
    pub(super) blobs: Account,
    pub(super) prefix: Prefix,
    pub(super) poll: Duration,
}

impl Config {
    /// The queues of an account whose names begin so.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], saying which part of the connection string is missing or wrong, or what a prefix is.
    pub(super) fn of_connection_string(text: &str, prefix: &str) -> Result<Self> {
        Ok(Config {
            queues: connection_string::queues(text)?,
            blobs: connection_string::blobs(text)?,
            prefix: Prefix::new(prefix)?,
            poll: POLL,
        })
    }

    /// Reads `azqueue://[prefix]` or `azqueue://host[:port]/[account/]prefix?<SAS>`, either with `poll=5s`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], saying which part is wrong and what would be right.
    pub(in super::super) fn from_url(url: &StoreUrl, connection_string: Option<&str>) -> Result<Self> {
        let known: Vec<&str> = OURS.iter().chain(&OF_A_SAS).copied().collect();
        url.allow_params(&known)?;
        let mut config = match url.rest().split_once('/') {
            None => Config::in_account(url, connection_string)?,
            Some((host, path)) => Config::at_host(url, host, path)?,
        };
        if let Some(poll) = url.params().get("poll") {
            config.poll = read_poll(poll)?;
        }
        Ok(config)
    }

    /// Reads what Azure gives as the URL of an account's SAS for queues: `https://account.queue.core.windows.net/?<SAS>`.
    ///
    /// # Errors
    /// As of [`Config::from_url`].
    pub(super) fn from_sas_url(text: &str, prefix: &str) -> Result<Self> {
        let url = StoreUrl::parse(text)?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err(bad("a SAS URL begins with https://"));
        }
        url.allow_params(&OF_A_SAS)?;
        let sas = sas_of(&url).ok_or_else(|| bad(A_SAS))?;
        let queues = Endpoint::parse(&format!("{}://{}", url.scheme(), url.rest()))?;
        let blobs = queues.sibling("queue", "blob").ok_or_else(|| bad(NO_BLOBS))?;
        Config::with_sas(queues, blobs, &sas, prefix)
    }

    fn in_account(url: &StoreUrl, connection_string: Option<&str>) -> Result<Self> {
        if url.params().keys().any(|name| name != "poll") {
            return Err(bad(
                "the parameters of a SAS, `protocol` and `blobs` go with azqueue://HOST/PREFIX; azqueue://PREFIX takes all that from BUS_AZURE_CONNECTION_STRING",
            ));
        }
        let text = connection_string.ok_or_else(|| {
            bad("azqueue://PREFIX needs the account's connection string: set BUS_AZURE_CONNECTION_STRING, or write azqueue://HOST/PREFIX?<SAS>")
        })?;
        let prefix = if url.rest().is_empty() { Prefix::USUAL } else { url.rest() };
        Config::of_connection_string(text, prefix).map_err(|error| error.with("variable", CONNECTION_STRING))
    }

    fn at_host(url: &StoreUrl, host: &str, path: &str) -> Result<Self> {
        let sas = sas_of(url).ok_or_else(|| bad(A_SAS))?;
        let (account, prefix) = match path.split('/').collect::<Vec<_>>().as_slice() {
            [prefix] => ("", *prefix),
            [account, prefix] => (*account, *prefix),
            _ => return Err(bad(A_PLACE)),
        };
        let queues = Endpoint::parse(&format!("{}://{host}/{account}", protocol(url, host)?))?;
        let blobs = match url.params().get("blobs") {
            Some(host) => Some(Endpoint::parse(&format!("{}://{host}/{account}", protocol(url, host)?))?),
            None => queues.sibling("queue", "blob"),
        };
        Config::with_sas(queues, blobs.ok_or_else(|| bad(NO_BLOBS))?, &sas, prefix)
    }

    fn with_sas(queues: Endpoint, blobs: Endpoint, sas: &str, prefix: &str) -> Result<Self> {
        let credential = Credential::sas(sas)?;
        Ok(Config {
            queues: Account { endpoint: queues, credential: credential.clone() },
            blobs: Account { endpoint: blobs, credential },
            prefix: Prefix::new(prefix)?,
            poll: POLL,
        })
    }
}

const A_PLACE: &str = "it is written azqueue://PREFIX, azqueue://HOST/PREFIX?<SAS> or azqueue://HOST:PORT/ACCOUNT/PREFIX?<SAS>&blobs=HOST:PORT";
const A_SAS: &str = "azqueue://HOST/PREFIX needs the parameters of a SAS (ss=bq&srt=sco&sp=rwdlacup&sig=…); with an account's key write azqueue://PREFIX and set BUS_AZURE_CONNECTION_STRING";
const NO_BLOBS: &str = "large bodies are kept in blobs, and where those are cannot be told from the queues' host: add blobs=HOST:PORT";

fn bad(message: &'static str) -> Error {
    error(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVELOPMENT: Option<&str> = Some("UseDevelopmentStorage=true");

    fn read(url: &str, connection_string: Option<&str>) -> Result<Config> {
        Config::from_url(&StoreUrl::parse(url)?, connection_string)
    }

    fn shown(config: &Config) -> String {
        let protocol = if config.queues.endpoint.is_plain() { "http" } else { "https" };
        let (queues, blobs) = (&config.queues.endpoint, &config.blobs.endpoint);
        format!("{protocol}://{queues} {blobs} {}", config.prefix)
    }

    #[test]
    fn a_prefix_alone_is_in_the_connection_strings_account() {
        let config = read("azqueue://shop", DEVELOPMENT).unwrap();
        assert_eq!(
            shown(&config),
            "http://127.0.0.1:10001/devstoreaccount1/ 127.0.0.1:10000/devstoreaccount1/ shop"
        );
        assert_eq!(config.poll, Duration::from_secs(5));
        let config = read("azqueue://?poll=2s", DEVELOPMENT).unwrap();
        assert_eq!((config.prefix.to_string().as_str(), config.poll), ("bus", Duration::from_secs(2)));
    }

    #[test]
    fn a_host_comes_with_a_sas_and_blobs_are_beside_it() {
        for (url, place) in [
            (
                "azqueue://shop.queue.core.windows.net/bus?sv=1&sig=x%2By%3D",
                "https://shop.queue.core.windows.net/ shop.blob.core.windows.net/ bus",
            ),
            (
                "azqueue://127.0.0.1:4712/account/bus?sig=x&blobs=127.0.0.1:4711",
                "http://127.0.0.1:4712/account/ 127.0.0.1:4711/account/ bus",
            ),
        ] {
            assert_eq!(shown(&read(url, None).unwrap()), place, "{url}");
        }
        let config = Config::from_sas_url("https://shop.queue.core.windows.net/?sp=rwdlacup&sig=x", "a1");
        assert_eq!(
            shown(&config.unwrap()),
            "https://shop.queue.core.windows.net/ shop.blob.core.windows.net/ a1"
        );
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_with_it() {
        for (url, connection_string, named) in [
            ("azqueue://bus", None, "BUS_AZURE_CONNECTION_STRING"),
            ("azqueue://bus", Some("AccountName=s3cret"), "BUS_AZURE_CONNECTION_STRING"),
            ("azqueue://bus?sig=s3cret", DEVELOPMENT, "azqueue://HOST/PREFIX"),
            ("azqueue://host/bus", DEVELOPMENT, "SAS"),
            ("azqueue://host/bus?sig=s3cret", None, "blobs=HOST:PORT"),
            ("azqueue://host/a/b/bus?sig=s3cret", None, "azqueue://HOST:PORT/ACCOUNT/PREFIX"),
            ("azqueue://a.queue.b/bus?sig=s3cret&pol=5s", None, "poll"),
            ("azqueue://bus?poll=1ms", DEVELOPMENT, "at least"),
            ("azqueue://my-bus", DEVELOPMENT, "a-z"),
            ("azqueue://Bus", DEVELOPMENT, "a-z"),
        ] {
            let error = read(url, connection_string).unwrap_err();
            let told = format!("{error:?}");
            assert!(error.kind() == ErrorKind::Config && told.contains(named), "{url}: {told}");
            assert!(!told.contains("s3cret"), "{told}");
        }
        let error = Config::from_sas_url("https://127.0.0.1/?sig=s3cret", "bus").unwrap_err();
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }
}
