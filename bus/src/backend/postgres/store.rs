//! An opened store: its connections, and what is known about it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use super::config::Config;
use super::error::Failure;
use super::pool::{Pool, within};
use super::schema;
use super::session::{Durability, Param};
use super::statement::{self, Sql};
use super::wake::{Topic, Wake};
use crate::contract::Durability as Outlives;
use crate::error::Result;
use crate::message::{Endpoint, Target};
use crate::reconnect::panicked;
use crate::wake::jittered;

/// How often waiting consumers are looked after, all of them by one query.
const POLL: Duration = Duration::from_secs(1);
/// The same where nobody is heard.
pub(super) const POLL_UNHEARD: Duration = Duration::from_millis(250);

/// How many connections are shared by all that has to be on the disk: the sender, and whatever people ask for.
const DURABLE_CONNECTIONS: usize = 2;

/// An opened store.
pub(super) struct Store {
    /// For claims, extensions and settlements.
    pub(super) relaxed: Arc<Pool>,
    /// For everything that somebody relies on.
    pub(super) durable: Arc<Pool>,
    pub(super) wake: Arc<Wake>,
    /// How often idle consumers ask, where a pooler stands between and nobody is heard.
    pub(super) polled: Option<Duration>,
    /// What an answered `send` outlives.
    pub(super) outlives: Outlives,
    /// What that means here.
    pub(super) acknowledgement: String,
    /// Endpoints that have been seen in the store.
    known: Mutex<HashSet<String>>,
    /// Consumers that wait.
    parked: Mutex<HashMap<u64, Parked>>,
    tasks: TaskTracker,
}

/// A consumer that waits.
#[derive(Clone)]
struct Parked {
    endpoint: i64,
    after: i64,
    target: Target,
}

impl Store {
    pub(super) async fn open(config: Config, create: bool) -> Result<Arc<Self>> {
        let config = Arc::new(config);
        let durable = Pool::new(Arc::clone(&config), Durability::Full, DURABLE_CONNECTIONS);
        let relaxed = Pool::new(Arc::clone(&config), Durability::Relaxed, config.connections);
        schema::open(&durable, create).await?;
        let (outlives, acknowledgement, direct) = ask_what_a_commit_means(&durable).await?;
        if !direct {
            tracing::warn!(
                target: "bus::postgres",
                server = config.place(),
                "a pooler stands before the server: statements are planned anew each time, and messages are found by polling every {POLL_UNHEARD:?}; connect directly for more speed"
            );
        }
        let tasks = TaskTracker::new();
        let wake = Wake::start(&relaxed, &tasks, direct);
        let store = Arc::new(Store {
            relaxed,
            durable,
            wake,
            outlives,
            polled: (!direct).then_some(POLL_UNHEARD),
            acknowledgement,
            known: Mutex::default(),
            parked: Mutex::default(),
            tasks,
        });
        let polled = Arc::downgrade(&store);
        store.tasks.spawn(async move {
            while panicked("what looks after waiting consumers", keep_polling(&polled)).await {}
        });
        Ok(store)
    }

    pub(super) fn config(&self) -> &Config {
        self.durable.config()
    }

    /// Lets go of the server. What is under way is given a moment.
    pub(super) async fn close(&self) {
        self.durable.close();
        self.relaxed.close();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// One statement on a pool, within its deadline.
    pub(super) async fn ask(
        &self,
        pool: &Arc<Pool>,
        sql: &'static Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, Failure> {
        let mut session = pool.borrow().await?;
        let answer = within(self.config().deadline, session.query(sql, params)).await;
        self.heeded(session.end(answer)).await
    }

    /// Has missing tables made again, should that be why a call failed.
    pub(super) async fn heeded<T>(&self, answer: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(failure) = &answer
            && failure.is_missing_schema()
        {
            tracing::warn!(target: "bus::postgres", schema = self.config().schema.as_str(), "tables are missing: making them again");
            self.forget_endpoints();
            if let Err(e) = schema::make(&self.durable).await {
                tracing::error!(target: "bus::postgres", error = ?e, "the tables cannot be made");
            }
        }
        answer
    }

    /// Makes endpoints that are not known to be there.
    pub(super) async fn ensure_endpoints(&self, endpoints: &[Endpoint]) -> Result<(), Failure> {
        let missing: Vec<&Endpoint> = {
            let known = self.known.lock();
            endpoints.iter().filter(|endpoint| !known.contains(&endpoint.to_string())).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let topics: Vec<Option<&str>> = missing
            .iter()
            .map(|endpoint| match endpoint {
                Endpoint::Queue(_) => None,
                Endpoint::Subscription { topic, .. } => Some(topic.as_str()),
            })
            .collect();
        self.ask(&self.durable, &statement::ENDPOINT_MAKE, &[&names, &topics]).await?;
        self.known.lock().extend(names);
        Ok(())
    }

    /// Forgets which endpoints have been seen: some are gone.
    pub(super) fn forget_endpoints(&self) {
        self.known.lock().clear();
    }

    /// The number of an endpoint, if it is there.
    pub(super) async fn find_endpoint(&self, endpoint: &Endpoint) -> Result<Option<i64>, Failure> {
        let rows = self.ask(&self.durable, &statement::ENDPOINT_FIND, &[&endpoint.to_string()]).await?;
        if rows.is_empty() {
            // Another process has dropped it: whoever prepares it now has to make it.
            self.forget_endpoints();
        }
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }

    /// Notes that a consumer waits for messages beyond `after`, for as long as the answer lives.
    pub(super) fn park(self: &Arc<Self>, endpoint: i64, after: i64, target: Target) -> impl Drop + use<> {
        let ticket = fastrand::u64(..);
        self.parked.lock().insert(ticket, Parked { endpoint, after, target });
        Ticket { store: Arc::clone(self), ticket }
    }

    /// How long until the waiting consumers are looked after again.
    fn pause(&self) -> Duration {
        jittered(if self.wake.is_listening() { POLL } else { POLL_UNHEARD })
    }

    /// Wakes the waiting consumers for whom there is something.
    async fn poll(&self) -> Result<(), Failure> {
        let parked: Vec<Parked> = self.parked.lock().values().cloned().collect();
        if parked.is_empty() {
            return Ok(());
        }
        let endpoints: Vec<i64> = parked.iter().map(|one| one.endpoint).collect();
        let after: Vec<i64> = parked.iter().map(|one| one.after).collect();
        for row in self.ask(&self.relaxed, &statement::POLL, &[&endpoints, &after]).await? {
            let found: i64 = row.try_get(0)?;
            for one in parked.iter().filter(|one| one.endpoint == found) {
                self.wake.hints.tell(&Topic::Messages(one.target.clone()));
            }
        }
        Ok(())
    }
}

/// Looks after the waiting consumers until the store is closed, or nobody has it any more.
async fn keep_polling(store: &Weak<Store>) {
    while let Some((pause, closed)) =
        store.upgrade().map(|store| (store.pause(), store.relaxed.closed().clone()))
    {
        tokio::select! {
            () = closed.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let Some(store) = store.upgrade() else { return };
        if let Err(failure) = store.poll().await {
            tracing::debug!(target: "bus::postgres", error = %failure.of_repeatable(), "cannot look for messages");
            // Consumers find out themselves, and about the end of the outage too.
            let parked: Vec<_> = store.parked.lock().values().cloned().collect();
            for one in parked {
                store.wake.hints.tell(&Topic::Messages(one.target));
            }
        }
    }
}

/// A store that nobody has any more leaves no connection and no task behind.
impl Drop for Store {
    fn drop(&mut self) {
        self.durable.close();
        self.relaxed.close();
    }
}

struct Ticket {
    store: Arc<Store>,
    ticket: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.store.parked.lock().remove(&self.ticket);
    }
}

/// What an answered `send` means on this server, and whether it is reached directly.
pub(super) async fn ask_what_a_commit_means(pool: &Arc<Pool>) -> Result<(Outlives, String, bool)> {
    let mut session = pool.borrow().await?;
    let direct = session.is_direct();
    let asked = within(pool.config().deadline, session.query(&statement::DURABILITY, &[])).await;
    let rows = session.end(asked).map_err(Failure::of_repeatable)?;
    let read = || -> Result<(String, String, bool), Failure> {
        let row = rows.first().ok_or_else(|| {
            super::error::error(crate::ErrorKind::Internal, "the server does not tell its settings")
        })?;
        Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
    };
    let (fsync, commit, standby) = read().map_err(Failure::of_repeatable)?;
    let (outlives, meaning) = match (fsync.as_str(), commit.as_str()) {
        (_, "off") => (
            Outlives::ServerMemory,
            "the message is in the server's memory: a crash of the server may take the last moments'",
        ),
        ("off", _) => (
            Outlives::Written,
            "the message is in the hands of the server's system: a crash of its machine may take it",
        ),
        (_, "remote_write" | "on" | "remote_apply") if standby => {
            (Outlives::Replicated, "the message is on the server's disk and with a synchronous standby")
        }
        _ => (Outlives::Synced, "the message is on the server's disk"),
    };
    Ok((outlives, format!("{meaning} (fsync={fsync}, synchronous_commit={commit})"), direct))
}
