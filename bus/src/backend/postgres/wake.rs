//! Hints between processes by NOTIFY: sent after the commit and never within a transaction that stores messages, since
//! the server lets notifying transactions commit one after the other only; gathered, so that there is one for many
//! messages; heard on a connection that does nothing else. Behind them everyone looks by himself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_postgres::Notification;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::{Failure, error};
use super::pool::{Pool, within};
use super::session::{Durability, Session};
use super::statement;
use crate::contract::LockId;
use crate::error::{ErrorKind, Result};
use crate::message::{Name, Target};
use crate::reconnect::{Backoff, panicked};
use crate::wake::Hints;

/// While there is always something to tell, others are told this often.
const PAUSE: Duration = Duration::from_millis(5);
/// How often the listening connection is asked whether it still lives.
const PING: Duration = Duration::from_secs(15);
/// The server takes less than 8000 bytes.
const LONGEST_PAYLOAD: usize = 7000;

/// What can be waited for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Topic {
    /// Messages sent to a queue or topic.
    Messages(Target),
    /// A lock that was released.
    Lock(LockId),
}

impl Topic {
    fn word(&self) -> String {
        match self {
            Topic::Messages(Target::Queue(name)) => format!("q/{name}"),
            Topic::Messages(Target::Topic(name)) => format!("t/{name}"),
            Topic::Lock(id) => format!("l/{}", id.as_str().replace('%', "%25").replace(' ', "%20")),
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        let (kind, name) = word.split_once('/')?;
        match kind {
            "q" => Some(Topic::Messages(Target::Queue(Name::new(name).ok()?))),
            "t" => Some(Topic::Messages(Target::Topic(Name::new(name).ok()?))),
            "l" => Some(Topic::Lock(LockId::from(name.replace("%20", " ").replace("%25", "%").as_str()))),
            _ => None,
        }
    }
}

/// The hints of one opened store.
pub(super) struct Wake {
    pub(super) hints: Hints<Topic>,
    pool: Arc<Pool>,
    /// Tells our own notifications from others'.
    instance: String,
    untold: Mutex<BTreeSet<Topic>>,
    something_to_tell: Notify,
    listening: AtomicBool,
}

impl Wake {
    /// Begins to tell, on connections of `pool`, and to listen, unless a pooler stands between us and the server.
    pub(super) fn start(pool: &Arc<Pool>, tasks: &TaskTracker, direct: bool) -> Arc<Self> {
        let wake = Arc::new(Wake {
            hints: Hints::default(),
            pool: Arc::clone(pool),
            instance: format!("{:016x}", fastrand::u64(..)),
            untold: Mutex::default(),
            something_to_tell: Notify::new(),
            listening: AtomicBool::new(false),
        });
        let stop = pool.closed().clone();
        tasks.spawn({
            let (wake, stop) = (Arc::clone(&wake), stop.clone());
            async move {
                let telling = async { while panicked("what gives hints", wake.keep_telling()).await {} };
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = telling => {}
                }
            }
        });
        if direct {
            let wake = Arc::clone(&wake);
            tasks.spawn(async move {
                while panicked("what listens for hints", wake.keep_listening(&stop)).await {
                    wake.listening.store(false, Ordering::Relaxed);
                }
            });
        }
        wake
    }

    /// Whether other processes are heard; where not, the poll has to do.
    pub(super) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    /// Tells those who wait in this process now, and others soon.
    pub(super) fn tell(&self, topics: impl IntoIterator<Item = Topic>) {
        let mut untold = self.untold.lock();
        for topic in topics {
            self.hints.tell(&topic);
            untold.insert(topic);
        }
        drop(untold);
        self.something_to_tell.notify_one();
    }

    async fn keep_telling(&self) {
        loop {
            self.something_to_tell.notified().await;
            for payload in self.payloads() {
                if let Err(failure) = self.notify(&payload).await {
                    tracing::debug!(target: "bus::postgres", error = %failure.of_repeatable(), "a hint to other processes was lost; they poll");
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn payloads(&self) -> Vec<String> {
        let mut payloads = Vec::new();
        let mut payload = String::new();
        for topic in std::mem::take(&mut *self.untold.lock()) {
            let word = topic.word();
            if !payload.is_empty() && payload.len() + word.len() > LONGEST_PAYLOAD {
                payloads.push(std::mem::take(&mut payload));
            }
            if payload.is_empty() {
                payload.clone_from(&self.instance);
            }
            payload.push(' ');
            payload.push_str(&word);
        }
        payloads.extend((!payload.is_empty()).then_some(payload));
        payloads
    }

    async fn notify(&self, payload: &str) -> Result<(), Failure> {
        let mut session = self.pool.borrow().await?;
        let channel = self.pool.config().schema.as_str();
        let told =
            within(self.pool.config().deadline, session.query(&statement::NOTIFY, &[&channel, &payload]))
                .await;
        session.end(told).map(drop)
    }

    async fn keep_listening(&self, stop: &CancellationToken) {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                ended = self.listen(&mut backoff) => {
                    self.listening.store(false, Ordering::Relaxed);
                    if let Err(failure) = ended {
                        tracing::debug!(target: "bus::postgres", error = %failure.of_repeatable(), "no hints from other processes for now; polling");
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(backoff.next()) => {}
            }
        }
    }

    /// Listens until the connection is lost.
    async fn listen(&self, backoff: &mut Backoff) -> Result<(), Failure> {
        let config = self.pool.config();
        let (told, mut heard) = mpsc::unbounded_channel();
        let mut session = Session::open(config, Durability::Relaxed, Some(told)).await?;
        if !session.is_direct() {
            return Err(error(ErrorKind::Unsupported, "a pooler stands before the server").into());
        }
        within(config.deadline, session.batch(&format!("LISTEN {}", config.schema.as_str()))).await?;
        backoff.reset();
        self.listening.store(true, Ordering::Relaxed);
        // What was told while nobody listened has not been heard.
        self.hints.tell_all();
        loop {
            match tokio::time::timeout(PING, heard.recv()).await {
                Ok(Some(notification)) => self.hear(&notification),
                Ok(None) => return Ok(()),
                Err(_) => within(config.deadline, session.batch("")).await?,
            }
        }
    }

    fn hear(&self, notification: &Notification) {
        let mut words = notification.payload().split(' ');
        if words.next() != Some(self.instance.as_str()) {
            for topic in words.filter_map(Topic::of_word) {
                self.hints.tell(&topic);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_read_what_they_write() {
        let name = || Name::new("a-b").unwrap();
        for topic in [
            Topic::Messages(Target::Queue(name())),
            Topic::Messages(Target::Topic(name())),
            Topic::Lock(LockId::from("x/queue/a b%20c")),
        ] {
            let word = topic.word();
            assert!(!word.contains(' '), "{word}");
            assert_eq!(Topic::of_word(&word), Some(topic));
        }
    }
}
