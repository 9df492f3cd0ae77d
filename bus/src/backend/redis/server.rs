//! What the server says of itself: whether it can be used, and what its acknowledgements mean.

use redis::Value;

use super::answer::{items, text};
use super::client::Client;
use super::error::{CLUSTER, error};
use crate::contract::Durability;
use crate::error::{ErrorKind, Result};

/// The oldest version with all that the scripts use, and the first that says in a script's error what the matter is: that it
/// is a replica now, say.
const OLDEST: (u32, u32) = (7, 0);

/// What is known of the server. What it may not be asked is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Server {
    version: Option<String>,
    mode: Option<String>,
    appendonly: Option<String>,
    appendfsync: Option<String>,
    policy: Option<String>,
}

impl Server {
    /// Asks the server. That it refuses to answer a question is no error.
    pub(super) async fn ask(client: &Client) -> Result<Self> {
        let told = info(client, "server").await?;
        let policy = match setting(client, "maxmemory-policy").await? {
            None => line(&info(client, "memory").await?, "maxmemory_policy"),
            known => known,
        };
        Ok(Server {
            version: line(&told, "redis_version"),
            mode: line(&told, "redis_mode"),
            appendonly: setting(client, "appendonly").await?,
            appendfsync: setting(client, "appendfsync").await?,
            policy,
        })
    }

    /// Refuses a server that this backend cannot use.
    pub(super) fn check(&self) -> Result<()> {
        if self.mode.as_deref() == Some("cluster") {
            return Err(error(ErrorKind::Unsupported, CLUSTER));
        }
        match &self.version {
            Some(version) if parts(version).is_some_and(|parts| parts < OLDEST) => {
                Err(error(ErrorKind::Unsupported, "the server is too old: Redis 7.0 or newer is needed")
                    .with("version", version))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a server that may throw locks away.
    pub(super) fn check_for_locks(&self) -> Result<()> {
        match self.policy.as_deref() {
            Some("noeviction") => Ok(()),
            Some(policy) => Err(error(
                ErrorKind::Unsupported,
                "the server may evict locks when its memory is full, so that two could hold one: set \
                 maxmemory-policy to noeviction",
            )
            .with("maxmemory-policy", policy)),
            None => {
                tracing::warn!(
                    "the server may not be asked for its maxmemory-policy (CONFIG GET and INFO are forbidden): \
                     make sure that it is noeviction, else locks may vanish"
                );
                Ok(())
            }
        }
    }

    /// What an answered send outlives.
    pub(super) fn durability(&self) -> Durability {
        match (self.appendonly.as_deref(), self.appendfsync.as_deref()) {
            (Some("no"), _) => Durability::ServerMemory,
            (Some("yes"), Some("always")) => Durability::Synced,
            (Some("yes"), Some("everysec" | "no")) => Durability::Written,
            _ => Durability::Unknown,
        }
    }

    /// What it means that the server has answered a send.
    pub(super) fn acknowledgement(&self) -> String {
        let on_disk = match (self.appendonly.as_deref(), self.appendfsync.as_deref()) {
            (Some("no"), _) => {
                "the message is in the server's memory; a restart of the server loses what came after its last \
                 snapshot (appendonly=no)"
            }
            (Some("yes"), Some("always")) => "the message is on the server's disk (appendfsync=always)",
            (Some("yes"), Some("everysec")) => {
                "the message survives the server's process; a crash of its machine may take the last second or two \
                 (appendfsync=everysec)"
            }
            (Some("yes"), Some("no")) => {
                "the message survives the server's process; a crash of its machine may take what its system had \
                 not written yet, half a minute's (appendfsync=no)"
            }
            _ => {
                "unknown: the message is in the server's memory; whether a restart loses it may not be asked \
                 (CONFIG GET is forbidden)"
            }
        };
        match self.evicting() {
            Some(policy) => format!("{on_disk}; a full server evicts messages (maxmemory-policy={policy})"),
            None => on_disk.to_owned(),
        }
    }

    /// A policy under which keys without an expiry, as ours are, are thrown away.
    fn evicting(&self) -> Option<&str> {
        self.policy.as_deref().filter(|policy| policy.starts_with("allkeys"))
    }

    /// Says at start by what two could hold one lock.
    pub(super) fn warn_of_forgotten_locks(&self, server: &str) {
        if self.appendonly.as_deref() == Some("no") {
            tracing::warn!(
                server,
                "a restart of the server forgets who holds a lock, and another one gets it before the holder's next \
                 renewal tells it so: set appendonly to yes"
            );
        }
    }

    /// Says at start, where it is heard, what acknowledged messages may be lost by.
    pub(super) fn warn_of_loss(&self, server: &str) {
        if self.appendonly.as_deref() == Some("no") {
            tracing::warn!(
                server,
                "a restart of the server loses what was sent after its last snapshot: set appendonly to yes"
            );
        }
        if let Some(policy) = self.evicting() {
            tracing::warn!(
                server,
                policy,
                "a full server evicts messages that nobody has processed: set maxmemory-policy to noeviction"
            );
        }
    }
}

/// Major and minor version.
fn parts(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// A section of what the server tells; nothing if it may not be asked.
async fn info(client: &Client, section: &str) -> Result<String> {
    match client.ask(redis::cmd("INFO").arg(section)).await {
        Ok(Value::VerbatimString { text, .. }) => Ok(text),
        Ok(answer) => text(answer),
        Err(refusal) if refusal.is_transient() || refusal.kind() == ErrorKind::Closed => Err(refusal),
        Err(_) => Ok(String::new()),
    }
}

fn line(info: &str, name: &str) -> Option<String> {
    info.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
}

/// A setting's value; `None` if it may not be asked, or there is none of that name.
async fn setting(client: &Client, name: &str) -> Result<Option<String>> {
    match client.ask(redis::cmd("CONFIG").arg("GET").arg(name)).await {
        Ok(Value::Map(pairs)) => pairs.into_iter().next().map(|(_, value)| text(value)).transpose(),
        Ok(answer) => items(answer)?.nth(1).map(text).transpose(),
        Err(refusal) if refusal.is_transient() || refusal.kind() == ErrorKind::Closed => Err(refusal),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(appendonly: Option<&str>, appendfsync: Option<&str>, policy: Option<&str>) -> Server {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Server {
            appendonly: own(appendonly),
            appendfsync: own(appendfsync),
            policy: own(policy),
            ..Server::default()
        }
    }

    #[test]
    fn an_acknowledgement_says_what_may_be_lost() {
        let said = |yes, fsync, policy| server(yes, fsync, policy).acknowledgement();
        assert!(said(Some("yes"), Some("always"), Some("noeviction")).ends_with("disk (appendfsync=always)"));
        assert!(said(Some("yes"), Some("everysec"), None).contains("last second"));
        assert!(said(Some("no"), Some("everysec"), None).contains("restart of the server loses"));
        assert!(said(None, None, None).starts_with("unknown"));
        assert!(said(Some("yes"), Some("always"), Some("allkeys-lru")).contains("evicts"));
        // Ours have no expiry, so that this one does not concern them.
        assert!(!said(Some("yes"), Some("always"), Some("volatile-lru")).contains("evicts"));
    }

    #[test]
    fn locks_are_refused_where_they_may_be_evicted() {
        assert!(server(None, None, Some("noeviction")).check_for_locks().is_ok());
        assert!(server(None, None, None).check_for_locks().is_ok());
        for policy in ["allkeys-lru", "volatile-ttl"] {
            let refusal = server(None, None, Some(policy)).check_for_locks().unwrap_err();
            assert!(refusal.to_string().contains(policy), "{refusal}");
        }
    }

    #[test]
    fn old_servers_and_clusters_are_refused() {
        let of = |version: &str, mode: &str| Server {
            version: Some(version.into()),
            mode: Some(mode.into()),
            ..Server::default()
        };
        assert!(of("7.0.15", "standalone").check().is_ok());
        assert!(of("7.0.0", "standalone").check().is_ok());
        assert!(of("10.1", "sentinel").check().is_ok());
        assert!(Server::default().check().is_ok());
        assert!(of("6.0.16", "standalone").check().unwrap_err().to_string().contains("6.0.16"));
        assert!(of("7.0.15", "cluster").check().unwrap_err().to_string().contains("cluster"));
    }
}
