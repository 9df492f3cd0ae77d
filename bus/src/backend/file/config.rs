//! What a `file://` URL says.

use std::path::PathBuf;
use std::time::Duration;

use super::error::error;
use crate::contract::{Reach, StoreUrl};
use crate::error::{Error, ErrorKind, Result};
use crate::settings::duration;

/// Where locks are to be kept.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// The directory, as it was written: relative to the working directory, unless absolute.
    pub(super) directory: PathBuf,
    /// Whether a missing directory is made.
    pub(super) create: bool,
    /// Whom the locks keep apart: the processes of this machine, or of all that share the directory.
    pub(super) reach: Reach,
    /// Whether the kind of the file system is left to whoever wrote the URL.
    pub(super) any_file_system: bool,
    /// How often a standby asks.
    pub(super) poll: Duration,
}

impl Config {
    const POLL: Duration = Duration::from_secs(1);
    const SHORTEST_POLL: Duration = Duration::from_millis(10);

    /// Reads `file://DIRECTORY[?reach=machine|fleet&poll=1s&file_system=any]`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], saying which part is wrong and what would be right.
    pub(super) fn from_url(url: &StoreUrl, create: bool) -> Result<Self> {
        url.allow_params(&["reach", "poll", "file_system"])?;
        if url.rest().is_empty() {
            return Err(bad("it names no directory: write file:///srv/app/locks"));
        }
        let reach = match url.params().get("reach").map(String::as_str) {
            None | Some("machine") => Reach::Machine,
            Some("fleet") => Reach::Fleet,
            Some(other) => return Err(bad("reach is machine or fleet").with("reach", other)),
        };
        let any_file_system = match url.params().get("file_system").map(String::as_str) {
            None => false,
            Some("any") => true,
            Some(other) => return Err(bad("file_system is any, or left out").with("file_system", other)),
        };
        let poll = url.params().get("poll").map_or(Ok(Self::POLL), |text| read_poll(text))?;
        Ok(Config { directory: PathBuf::from(url.rest()), create, reach, any_file_system, poll })
    }
}

fn read_poll(text: &str) -> Result<Duration> {
    let wrong = |why: &str| {
        bad(format!("poll is a duration of at least {:?}, such as 1s: {why}", Config::SHORTEST_POLL))
            .with("poll", text)
    };
    let poll = duration::read(text).map_err(wrong)?;
    if poll < Config::SHORTEST_POLL {
        return Err(wrong("it is shorter"));
    }
    Ok(poll)
}

fn bad(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    error(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Config> {
        Config::from_url(&StoreUrl::parse(url)?, true)
    }

    #[test]
    fn a_directory_alone_is_for_one_machine() {
        let config = read("file:///srv/app/locks").unwrap();
        assert_eq!(config.directory, PathBuf::from("/srv/app/locks"));
        assert_eq!((config.reach, config.poll), (Reach::Machine, Duration::from_secs(1)));
        assert!(!config.any_file_system);
        assert_eq!(read("file://locks").unwrap().directory, PathBuf::from("locks"));
    }

    #[test]
    fn a_url_says_how_far_it_reaches_before_anything_is_opened() {
        let url = StoreUrl::parse("file:///mnt/locks?reach=fleet&file_system=any&poll=250ms").unwrap();
        assert_eq!(url.stated_reach(), Some(Reach::Fleet));
        let config = Config::from_url(&url, false).unwrap();
        assert_eq!((config.reach, config.poll), (Reach::Fleet, Duration::from_millis(250)));
        assert!(config.any_file_system && !config.create);
    }

    #[test]
    fn wrong_parts_are_named() {
        for (url, named) in [
            ("file://", "names no directory"),
            ("file:///locks?reach=process", "reach"),
            ("file:///locks?poll=1", "unit"),
            ("file:///locks?poll=1ms", "at least"),
            ("file:///locks?file_system=nfs", "file_system"),
            ("file:///locks?lease=5s", "lease"),
        ] {
            let error = read(url).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(error.to_string().contains(named), "{url}: {error}");
        }
    }
}
