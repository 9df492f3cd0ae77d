//! What an `azblob://` URL says.

use std::time::Duration;

use super::connection_string;
use super::credential::{Account, Credential, Endpoint, is_loopback};
use super::error::error;
use crate::contract::StoreUrl;
use crate::error::{Error, ErrorKind, Result};
use crate::settings::duration;

/// Where the credentials are that do not stand in a URL.
pub(super) const CONNECTION_STRING: &str = "BUS_AZURE_CONNECTION_STRING";

/// The account that the environment names, if it does.
///
/// # Errors
/// [`ErrorKind::Config`] if it is no text.
pub(super) fn connection_string_of_environment() -> Result<Option<String>> {
    match std::env::var(CONNECTION_STRING) {
        Ok(text) => Ok(Some(text)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(error(ErrorKind::Config, "the variable is no UTF-8").with("variable", CONNECTION_STRING))
        }
    }
}

/// How often a standby asks, unless it is said otherwise. Nothing tells of a release, and every question costs money.
pub(super) const POLL: Duration = Duration::from_secs(5);
const SHORTEST_POLL: Duration = Duration::from_millis(100);

/// Parameters of ours.
const OURS: [&str; 2] = ["poll", "protocol"];

/// Parameters of a shared access signature, as Azure names them.
pub(super) const OF_A_SAS: [&str; 27] = [
    "sv", "ss", "srt", "sr", "sp", "st", "se", "sip", "spr", "si", "sig", "skoid", "sktid", "skt", "ske",
    "sks", "skv", "skdutid", "sduoid", "saoid", "suoid", "scid", "sdd", "ses", "rscc", "rscd", "rsct",
];

/// A container to be opened.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) account: Account,
    pub(super) container: String,
    pub(super) poll: Duration,
}

impl Config {
    /// A container of an account, with the usual poll.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if Azure has no container of that name.
    pub(super) fn new(account: Account, container: &str) -> Result<Self> {
        check_container(container)?;
        Ok(Config { account, container: container.to_owned(), poll: POLL })
    }

    /// Reads `azblob://container` or `azblob://host[:port]/[account/]container?<SAS>`, either with `poll=5s`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], saying which part is wrong and what would be right.
    pub(super) fn from_url(url: &StoreUrl, connection_string: Option<&str>) -> Result<Self> {
        let known: Vec<&str> = OURS.iter().chain(&OF_A_SAS).copied().collect();
        url.allow_params(&known)?;
        let mut config = match url.rest().split_once('/') {
            None => Config::in_account(url, connection_string)?,
            Some((host, path)) => Config::at_host(host, path, protocol(url, host)?, sas_of(url).as_deref())?,
        };
        if let Some(poll) = url.params().get("poll") {
            config.poll = read_poll(poll)?;
        }
        Ok(config)
    }

    /// Reads what Azure gives as the URL of a container's SAS: `https://host/[account/]container?<SAS>`.
    ///
    /// # Errors
    /// As of [`Config::from_url`].
    pub(super) fn from_sas_url(text: &str) -> Result<Self> {
        let url = StoreUrl::parse(text)?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err(bad("a SAS URL begins with https://"));
        }
        url.allow_params(&OF_A_SAS)?;
        let (host, path) = url.rest().split_once('/').ok_or_else(|| bad(A_PLACE))?;
        Config::at_host(host, path, url.scheme(), sas_of(&url).as_deref())
    }

    fn in_account(url: &StoreUrl, connection_string: Option<&str>) -> Result<Self> {
        if url.params().keys().any(|name| name != "poll") {
            return Err(bad(
                "the parameters of a SAS, and `protocol`, go with azblob://HOST/CONTAINER; azblob://CONTAINER takes all that from BUS_AZURE_CONNECTION_STRING",
            ));
        }
        let text = connection_string.ok_or_else(|| {
            bad("azblob://CONTAINER needs the account's connection string: set BUS_AZURE_CONNECTION_STRING, or write azblob://HOST/CONTAINER?<SAS>")
        })?;
        let account =
            connection_string::blobs(text).map_err(|error| error.with("variable", CONNECTION_STRING))?;
        Config::new(account, url.rest())
    }

    fn at_host(host: &str, path: &str, protocol: &str, sas: Option<&str>) -> Result<Self> {
        let sas = sas.ok_or_else(|| {
            bad("azblob://HOST/CONTAINER needs the parameters of a SAS (sv=…&sp=…&sig=…); with an account's key write azblob://CONTAINER and set BUS_AZURE_CONNECTION_STRING")
        })?;
        let (account, container) = match path.split('/').collect::<Vec<_>>().as_slice() {
            [container] => ("", *container),
            [account, container] => (*account, *container),
            _ => return Err(bad(A_PLACE)),
        };
        let endpoint = Endpoint::parse(&format!("{protocol}://{host}/{account}"))?;
        Config::new(Account { endpoint, credential: Credential::sas(sas)? }, container)
    }
}

const A_PLACE: &str = "it is written azblob://CONTAINER, azblob://HOST/CONTAINER?<SAS> or azblob://HOST:PORT/ACCOUNT/CONTAINER?<SAS>";

/// The parameters of the SAS, if there is one, as they were written: still encoded, as they were signed.
pub(super) fn sas_of(url: &StoreUrl) -> Option<String> {
    let of_sas = url.params().iter().filter(|(name, _)| OF_A_SAS.contains(&name.as_str()));
    let pairs: Vec<String> = of_sas.map(|(name, value)| format!("{name}={value}")).collect();
    (!pairs.is_empty()).then(|| pairs.join("&"))
}

/// How to speak to a host: unencrypted only with this machine, or where that was said.
pub(super) fn protocol<'u>(url: &'u StoreUrl, host: &str) -> Result<&'u str> {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    match url.params().get("protocol").map(String::as_str) {
        Some(said @ ("http" | "https")) => Ok(said),
        Some(_) => Err(bad("protocol is https or http")),
        None if is_loopback(name.map_or(host, |(name, _)| name)) => Ok("http"),
        None => Ok("https"),
    }
}

pub(super) fn read_poll(text: &str) -> Result<Duration> {
    let wrong = |why: &str| {
        error(
            ErrorKind::Config,
            format!("poll is a duration of at least {SHORTEST_POLL:?}, such as 5s: {why}"),
        )
        .with("poll", text)
    };
    let poll = duration::read(text).map_err(wrong)?;
    if poll < SHORTEST_POLL {
        return Err(wrong("it is shorter"));
    }
    Ok(poll)
}

/// Azure's rule for names of containers. The special ones (`$root`, `$web`, `$logs`) are not for locks.
fn check_container(name: &str) -> Result<()> {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let dashes = name.starts_with('-') || name.ends_with('-') || name.contains("--");
    if plain && !dashes && (3..=63).contains(&name.len()) {
        return Ok(());
    }
    Err(bad(
        "a container's name is 3 to 63 of a-z, 0-9 and single inner dashes; an azblob:// URL is azblob://CONTAINER or azblob://HOST/CONTAINER?<SAS>",
    ))
}

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
        let protocol = if config.account.endpoint.is_plain() { "http" } else { "https" };
        format!("{protocol}://{}{}", config.account.endpoint, config.container)
    }

    #[test]
    fn a_container_alone_is_in_the_connection_strings_account() {
        let config = read("azblob://locks", DEVELOPMENT).unwrap();
        assert_eq!(shown(&config), "http://127.0.0.1:10000/devstoreaccount1/locks");
        assert_eq!(config.poll, Duration::from_secs(5));
        assert_eq!(read("azblob://locks?poll=2s", DEVELOPMENT).unwrap().poll, Duration::from_secs(2));
    }

    #[test]
    fn a_host_comes_with_a_sas_and_is_spoken_to_in_the_clear_only_if_it_is_this_machine() {
        for (url, place) in [
            (
                "azblob://shop.blob.core.windows.net/locks?sv=1&sig=x%2By%3D",
                "https://shop.blob.core.windows.net/locks",
            ),
            ("azblob://127.0.0.1:4711/account/locks?sig=x", "http://127.0.0.1:4711/account/locks"),
            ("azblob://[::1]:4711/account/locks?sig=x", "http://[::1]:4711/account/locks"),
            ("azblob://localhost/account/locks?sig=x&protocol=https", "https://localhost/account/locks"),
            ("azblob://azurite:4711/account/locks?sig=x", "https://azurite:4711/account/locks"),
            ("azblob://azurite:4711/account/locks?sig=x&protocol=http", "http://azurite:4711/account/locks"),
        ] {
            assert_eq!(shown(&read(url, None).unwrap()), place, "{url}");
        }
    }

    #[test]
    fn a_sas_is_passed_on_as_it_was_signed() {
        let config = read("azblob://h/locks?sv=2024-01-01&sig=x%2By%3D%3D&poll=1s&sp=rcwl", None).unwrap();
        let Credential::Sas(sas) = config.account.credential else { panic!("no SAS") };
        assert_eq!(sas.secret(), "sig=x%2By%3D%3D&sp=rcwl&sv=2024-01-01");
        let config = Config::from_sas_url("https://h/locks?sp=rcwl&sig=x%3D").unwrap();
        assert_eq!(shown(&config), "https://h/locks");
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_with_it() {
        for (url, connection_string, named) in [
            ("azblob://locks", None, "BUS_AZURE_CONNECTION_STRING"),
            ("azblob://locks", Some("AccountName=s3cret"), "BUS_AZURE_CONNECTION_STRING"),
            ("azblob://locks?sig=s3cret", DEVELOPMENT, "azblob://HOST/CONTAINER"),
            ("azblob://locks?protocol=http", DEVELOPMENT, "azblob://HOST/CONTAINER"),
            ("azblob://host/locks", DEVELOPMENT, "SAS"),
            ("azblob://host/locks?sv=s3cret", None, "`sig`"),
            ("azblob://host/a/b/locks?sig=s3cret", None, "azblob://HOST:PORT/ACCOUNT/CONTAINER"),
            ("azblob://user:s3cret@host/locks?sig=x", None, "user"),
            ("azblob://host/locks?sig=s3cret&protocol=ftp", None, "protocol"),
            ("azblob://host/locks?sig=s3cret&pol=5s", None, "poll"),
            ("azblob://locks?poll=5", DEVELOPMENT, "unit"),
            ("azblob://locks?poll=1ms", DEVELOPMENT, "at least"),
            ("azblob://", DEVELOPMENT, "CONTAINER"),
            ("azblob://host/?sig=s3cret", None, "CONTAINER"),
            ("azblob://Locks", DEVELOPMENT, "a-z"),
            ("azblob://lo", DEVELOPMENT, "3 to 63"),
            ("azblob://lo--cks", DEVELOPMENT, "dashes"),
            ("azblob://$root", DEVELOPMENT, "a-z"),
        ] {
            let error = read(url, connection_string).unwrap_err();
            let told = format!("{error:?}");
            assert!(error.kind() == ErrorKind::Config && told.contains(named), "{url}: {told}");
            assert!(!told.contains("s3cret"), "{told}");
        }
        for url in [
            "azblob://h/locks?sig=x",
            "https://h/locks?sv=s3cret",
            "https://h?sig=s3cret",
            "https://h/a/b/c?sig=s3cret",
        ] {
            let error = Config::from_sas_url(url).unwrap_err();
            assert!(
                error.kind() == ErrorKind::Config && !format!("{error:?}").contains("s3cret"),
                "{error:?}"
            );
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let config = read("azblob://h/locks?sig=s3cret", None).unwrap();
        assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
    }
}
