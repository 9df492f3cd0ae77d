//! The stores of the messages and of the lock: which ones were asked for, and what follows from their kinds.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::args::duration;

/// How often a standby asks blobs, unless the URL says otherwise.
const POLL_OF_BLOBS: Duration = Duration::from_secs(5);
/// How often a standby asks other machines' directories, unless the URL says otherwise.
const POLL_OF_DIRECTORIES: Duration = Duration::from_secs(1);

/// What a store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file of SQLite.
    Sqlite,
    /// A schema in Postgres.
    Postgres,
    /// Keys in Redis.
    Redis,
    /// Streams in NATS.
    Nats,
    /// Queues in Azure Storage: for the messages alone.
    Queues,
    /// Blobs in Azure Storage: for the lock alone.
    Blobs,
    /// A directory: for the lock alone.
    Directory,
}

/// What each kind is called: the scheme of its URLs, and the word that stands for a server of the driver's own, where
/// there is one.
const NAMES: &[(Kind, &str, Option<&str>)] = &[
    (Kind::Sqlite, "sqlite", None),
    (Kind::Postgres, "postgres", Some("postgres")),
    (Kind::Redis, "redis", Some("redis")),
    (Kind::Nats, "nats", Some("nats")),
    (Kind::Queues, "azqueue", Some("azqueue")),
    (Kind::Blobs, "azblob", Some("azblob")),
    (Kind::Directory, "file", None),
];

/// A store that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// The one at a URL.
    At(Kind, String),
    /// One on a server that the driver starts.
    Own(Kind),
}

impl Asked {
    /// What it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::At(kind, _) | Self::Own(kind) => *kind,
        }
    }

    /// Its URL, where it has one already.
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::At(_, url) => Some(url),
            Self::Own(_) => None,
        }
    }

    /// Whether messages can be in it.
    pub fn takes_messages(&self) -> bool {
        !matches!(self.kind(), Kind::Blobs | Kind::Directory)
    }

    /// Whether locks can be in it.
    pub fn gives_locks(&self) -> bool {
        self.kind() != Kind::Queues
    }

    /// Where the lock is unless that is said: with the messages, or else beside them.
    pub fn lock(&self) -> Option<Self> {
        match self {
            Self::Own(Kind::Queues) => Some(Self::Own(Kind::Blobs)),
            _ => self.gives_locks().then(|| self.clone()),
        }
    }

    /// How long at most, besides the lease, until a standby learns that the lock is free: not at all where it is told.
    ///
    /// # Errors
    /// When the URL's `poll` is no duration.
    pub fn notice(&self) -> Result<Duration, String> {
        let url = self.url().unwrap_or_default();
        let find = |name| parameters(url).find_map(|(key, value)| (key == name).then_some(value));
        let poll = find("poll").map(duration).transpose()?;
        Ok(match self.kind() {
            Kind::Sqlite | Kind::Postgres | Kind::Redis | Kind::Nats | Kind::Queues => Duration::ZERO,
            Kind::Blobs => poll.unwrap_or(POLL_OF_BLOBS),
            // The last renewal is seen as late as the end of the lease after it.
            Kind::Directory if find("reach") == Some("fleet") => poll.unwrap_or(POLL_OF_DIRECTORIES) * 2,
            Kind::Directory => Duration::ZERO,
        })
    }

    /// Whether it has what everybody could read on the command lines of the hosts. (Not found while parsing, whose
    /// errors repeat what was written.)
    pub fn has_credentials(&self) -> bool {
        let url = self.url().unwrap_or_default();
        match self.kind() {
            Kind::Sqlite | Kind::Directory => false,
            Kind::Blobs | Kind::Queues => parameters(url).any(|(name, _)| name != "poll"),
            Kind::Postgres | Kind::Redis | Kind::Nats => {
                let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
                let login = rest.rsplit_once('@').map(|(login, _)| login);
                // What stands alone there is a token in NATS.
                login.is_some_and(|login| login.contains(':') || self.kind() == Kind::Nats)
            }
        }
    }

    /// The leases that it gives to locks.
    pub fn leases(&self) -> RangeInclusive<Duration> {
        match self.kind() {
            Kind::Blobs => Duration::from_secs(15)..=Duration::from_secs(60),
            _ => Duration::ZERO..=Duration::MAX,
        }
    }

    /// What this run uses at a server's URL: a part of it that no other run touches, unless the URL names one. `run` is of
    /// digits and underlines.
    pub fn part_of(&self, url: &str, run: &str) -> String {
        let (parameter, run) = match self.kind() {
            Kind::Postgres => ("schema", format!("failover_{run}")),
            Kind::Redis => ("prefix", format!("failover_{run}")),
            // Which has no underlines in names.
            Kind::Nats => ("prefix", format!("failover-{}", run.replace('_', "-"))),
            _ => return url.to_owned(),
        };
        if parameters(url).any(|(name, _)| name == parameter) {
            return url.to_owned();
        }
        let before = if url.contains('?') { '&' } else { '?' };
        format!("{url}{before}{parameter}={run}")
    }
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        let found = NAMES.iter().find_map(|(kind, name, own)| match scheme {
            Some(scheme) => (scheme == *name).then(|| Self::At(*kind, text.to_owned())),
            None => (*own == Some(text)).then_some(Self::Own(*kind)),
        });
        let asked = found.ok_or_else(known)?;
        asked.notice()?;
        Ok(asked)
    }
}

fn known() -> String {
    let urls: Vec<_> = NAMES.iter().map(|(_, name, _)| format!("{name}://…")).collect();
    let own: Vec<_> = NAMES.iter().filter_map(|(_, _, own)| *own).collect();
    format!("write {}, or, for a server that is started for it, {}", urls.join(", "), own.join(", "))
}

/// The parameters of a URL.
pub fn parameters(url: &str) -> impl Iterator<Item = (&str, &str)> {
    let (_, parameters) = url.split_once('?').unwrap_or_default();
    parameters.split('&').filter_map(|pair| pair.split_once('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Asked {
        text.parse().unwrap()
    }

    #[test]
    fn a_word_is_a_server_of_its_own_and_a_url_is_what_it_says() {
        assert_eq!(asked("azblob"), Asked::Own(Kind::Blobs));
        assert_eq!(asked("postgres"), Asked::Own(Kind::Postgres));
        let file = "sqlite://a.db?x=y";
        assert_eq!(asked(file), Asked::At(Kind::Sqlite, file.to_owned()));
        assert!(asked("redis").takes_messages() && !asked("file://locks").takes_messages());
        assert_eq!(asked("azqueue").lock(), Some(Asked::Own(Kind::Blobs)));
        assert_eq!(asked("azqueue://q").lock(), None);
        assert_eq!(asked("redis").lock(), Some(Asked::Own(Kind::Redis)));
    }

    #[test]
    fn a_standby_learns_by_asking_where_nobody_tells_it() {
        for (text, millis) in [
            ("azblob", 5_000),
            ("azblob://locks?poll=2s", 2_000),
            ("file://locks", 0),
            ("file://locks?poll=2s", 0),
            ("file://locks?reach=fleet", 2_000),
            ("file://locks?reach=fleet&poll=250ms", 500),
            ("sqlite://a.db", 0),
            ("redis", 0),
        ] {
            assert_eq!(asked(text).notice(), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn passwords_keys_and_signatures_are_credentials() {
        for secret in [
            "azblob://host/locks?poll=1s&sig=s3cret",
            "postgres://me:s3cret@host/db",
            "redis://:s3cret@host/0",
            "postgres://me:s3c@ret@host/db",
            "nats://t0ken@host:4222",
        ] {
            assert!(asked(secret).has_credentials(), "{secret}");
        }
        for plain in ["azblob://locks?poll=1s", "postgres://me@host:5432/db", "redis://host:6379/0", "redis"]
        {
            assert!(!asked(plain).has_credentials(), "{plain}");
        }
    }

    #[test]
    fn a_run_has_a_part_of_a_server_to_itself() {
        let part = |text: &str| asked(text).part_of(text, "7_8");
        assert_eq!(part("postgres://h/db"), "postgres://h/db?schema=failover_7_8");
        assert_eq!(part("postgres://h/db?schema=mine"), "postgres://h/db?schema=mine");
        assert_eq!(part("redis://h?timeout=900"), "redis://h?timeout=900&prefix=failover_7_8");
        assert_eq!(part("nats://h:4222"), "nats://h:4222?prefix=failover-7-8");
        assert_eq!(part("azblob://locks"), "azblob://locks");
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        for (wrong, says) in [
            ("memory://", "azblob://…"),
            ("azblobs", "azblob"),
            ("azblob://locks?poll=soon", "write it like 5s"),
        ] {
            let error = wrong.parse::<Asked>().unwrap_err();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }
}
