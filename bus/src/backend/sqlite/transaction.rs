//! What one statement of work sees: the connection within a write transaction (or for reading, outside one), the time,
//! and what has to be told to others once it is committed.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use rusqlite::{CachedStatement, Connection, OptionalExtension};

use super::clocks::OtherClocks;
use super::row::{instant, nanos};
use super::wake::Topic;
use crate::clock::{BootInstant, Clock, Timestamp};
use crate::message::{Endpoint, Name};

/// How many of a message id's bits count messages; the others name the endpoint. Messages of one endpoint thus lie side
/// by side in the table's own order: 131,071 endpoints, and eleven years of 200,000 messages a second.
const SEQUENCE_BITS: u32 = 46;

/// An endpoint's number in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EndpointId(pub(super) i64);

impl EndpointId {
    const LARGEST: i64 = (1 << (63 - SEQUENCE_BITS)) - 1;

    /// Below every message id of this endpoint.
    pub(super) fn first(self) -> i64 {
        self.0 << SEQUENCE_BITS
    }

    /// The largest message id of this endpoint.
    pub(super) fn last(self) -> i64 {
        self.first() | ((1 << SEQUENCE_BITS) - 1)
    }

    /// Whether that message is one of this endpoint's.
    pub(super) fn has(self, message: i64) -> bool {
        message >> SEQUENCE_BITS == self.0
    }
}

/// How often the store is told what our clock shows, by those who write what is reckoned by it. What others wait for lasts
/// so much longer for them at the most.
const STAMP_EVERY: Duration = Duration::from_secs(1);

/// What a connection remembers between transactions: what can never change, and what other clocks have shown.
#[derive(Debug, Default)]
pub(super) struct Known {
    queues: HashMap<Name, EndpointId>,
    clocks: OtherClocks,
    /// When the store was last told what our clock shows.
    stamped: Option<BootInstant>,
}

/// The view that a piece of work gets.
pub(super) struct Tx<'c> {
    connection: &'c Connection,
    clock: &'c Clock,
    /// Now, for leases.
    pub(super) now: BootInstant,
    /// Now, for due times.
    pub(super) wall: Timestamp,
    /// The clock that `now` is of.
    pub(super) boot: i64,
    known: &'c mut Known,
    /// Found or made in this transaction, and forgotten if it fails.
    queues: HashMap<Name, EndpointId>,
    last_queue: Option<(Name, EndpointId)>,
    topics: HashMap<Name, Vec<EndpointId>>,
    sequence: Option<i64>,
    insert: Option<CachedStatement<'c>>,
    /// Whose waiters are told after the commit.
    touched: BTreeSet<EndpointId>,
    freed_lock: bool,
    /// Whether something was written that is reckoned by our clock.
    is_dated: Cell<bool>,
    is_stamped: bool,
}

/// Whom to tell after a commit.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) touched: BTreeSet<EndpointId>,
    pub(super) freed_lock: bool,
}

impl Effects {
    /// The same, as what is waited for.
    pub(super) fn topics(&self) -> impl Iterator<Item = Topic> + '_ {
        let messages = self.touched.iter().map(|id| Topic::Messages(*id));
        messages.chain(self.freed_lock.then_some(Topic::Locks))
    }
}

impl<'c> Tx<'c> {
    pub(super) fn new(connection: &'c Connection, known: &'c mut Known, clock: &'c Clock, boot: i64) -> Self {
        Tx {
            connection,
            clock,
            now: clock.now(),
            wall: clock.wall(),
            boot,
            known,
            queues: HashMap::new(),
            last_queue: None,
            topics: HashMap::new(),
            sequence: None,
            insert: None,
            touched: BTreeSet::new(),
            freed_lock: false,
            is_dated: Cell::new(false),
            is_stamped: false,
        }
    }

    /// An instant of our clock as the two columns that hold it, to be written.
    pub(super) fn dated(&self, instant: BootInstant) -> (i64, i64) {
        self.is_dated.set(true);
        (nanos(instant), self.boot)
    }

    /// What a clock shows now, or the least that it does. `None` if nothing is known of it: then only older versions have
    /// written by it, and have ended since.
    pub(super) fn clock(&self, boot: i64) -> rusqlite::Result<Option<BootInstant>> {
        if boot == self.boot {
            return Ok(Some(self.now));
        }
        let seen = self.statement(include_str!("sql/boot_seen.sql"))?.query_row([boot], |row| row.get(0));
        let seen: Option<Option<i64>> = seen.optional()?;
        Ok(seen.flatten().map(|seen| self.clock_after(boot, instant(seen))))
    }

    /// What a clock shows now, or the least that it does, given that it has shown this.
    pub(super) fn clock_after(&self, boot: i64, shown: BootInstant) -> BootInstant {
        if boot == self.boot {
            return self.now;
        }
        // Not `now`: where nobody keeps others from writing, it may have been shown after that.
        self.known.clocks.least(boot, shown, self.clock.now())
    }

    /// Reads the clocks again.
    pub(super) fn read_clocks(&mut self) {
        self.now = self.clock.now();
        self.wall = self.clock.wall();
    }

    /// A prepared statement; prepared once per connection.
    pub(super) fn statement(&self, sql: &'static str) -> rusqlite::Result<CachedStatement<'c>> {
        self.connection.prepare_cached(sql)
    }

    /// Runs a prepared statement; answers how many rows it changed.
    pub(super) fn execute(
        &self,
        sql: &'static str,
        params: impl rusqlite::Params,
    ) -> rusqlite::Result<usize> {
        self.statement(sql)?.execute(params)
    }

    /// The statement that every send runs, kept at hand for the whole transaction.
    pub(super) fn insert(&mut self) -> rusqlite::Result<&mut CachedStatement<'c>> {
        match &mut self.insert {
            Some(statement) => Ok(statement),
            none => Ok(none.insert(self.connection.prepare_cached(include_str!("sql/message_insert.sql"))?)),
        }
    }

    /// The next message's number. Every process allocates within its write transaction, so that order of numbers is
    /// order of commits.
    pub(super) fn next_number(&mut self) -> rusqlite::Result<i64> {
        let next = match self.sequence {
            Some(next) => next,
            None => self.statement(include_str!("sql/sequence_next.sql"))?.query_row([], |row| row.get(0))?,
        };
        if next >> SEQUENCE_BITS != 0 {
            // It would count on into the endpoint's bits, and name another endpoint's message.
            return Err(rusqlite::Error::IntegralValueOutOfRange(0, next));
        }
        self.sequence = Some(next + 1);
        Ok(next)
    }

    /// The endpoint of a queue, which is made if it is not there yet.
    pub(super) fn queue(&mut self, name: &Name) -> rusqlite::Result<EndpointId> {
        // Mostly one message follows another into the same queue.
        if let Some((last, id)) = &self.last_queue
            && last == name
        {
            return Ok(*id);
        }
        let known = self.known.queues.get(name).or_else(|| self.queues.get(name)).copied();
        let id = match known {
            Some(id) => id,
            None => {
                let id = self.ensure_endpoint(&Endpoint::Queue(name.clone()))?;
                self.queues.insert(name.clone(), id);
                id
            }
        };
        self.last_queue = Some((name.clone(), id));
        Ok(id)
    }

    /// The endpoints of a topic's subscriptions.
    pub(super) fn subscriptions(&mut self, topic: &Name) -> rusqlite::Result<Vec<EndpointId>> {
        if let Some(ids) = self.topics.get(topic) {
            return Ok(ids.clone());
        }
        let ids: Vec<_> = self
            .statement(include_str!("sql/endpoint_of_topic.sql"))?
            .query_map([topic.as_str()], |row| row.get(0).map(EndpointId))?
            .collect::<rusqlite::Result<_>>()?;
        self.topics.insert(topic.clone(), ids.clone());
        Ok(ids)
    }

    /// The number of an endpoint, if it is known to the store.
    pub(super) fn find_endpoint(&self, endpoint: &Endpoint) -> rusqlite::Result<Option<EndpointId>> {
        self.statement(include_str!("sql/endpoint_find.sql"))?
            .query_row([endpoint.to_string()], |row| row.get(0).map(EndpointId))
            .optional()
    }

    /// The number of an endpoint, which is made if missing.
    pub(super) fn ensure_endpoint(&mut self, endpoint: &Endpoint) -> rusqlite::Result<EndpointId> {
        if let Some(id) = self.find_endpoint(endpoint)? {
            return Ok(id);
        }
        let topic = match endpoint {
            Endpoint::Queue(_) => None,
            Endpoint::Subscription { topic, .. } => Some(topic.as_str()),
        };
        let id: i64 = self
            .statement(include_str!("sql/endpoint_insert.sql"))?
            .query_row((endpoint.to_string(), topic), |row| row.get(0))?;
        self.topics.clear();
        if id > EndpointId::LARGEST {
            return Err(rusqlite::Error::IntegralValueOutOfRange(0, id));
        }
        Ok(EndpointId(id))
    }

    /// Has those told who wait for messages of this endpoint.
    pub(super) fn touch(&mut self, endpoint: EndpointId) {
        if self.touched.last() != Some(&endpoint) {
            self.touched.insert(endpoint);
        }
    }

    /// Has those told who wait for a lock.
    pub(super) fn free_lock(&mut self) {
        self.freed_lock = true;
    }

    /// Writes what was kept for the end. Before the commit.
    pub(super) fn finish(&mut self) -> rusqlite::Result<()> {
        if let Some(next) = self.sequence {
            self.execute(include_str!("sql/sequence_store.sql"), [next])?;
        }
        let is_due = self.known.stamped.is_none_or(|last| self.now.since(last) >= STAMP_EVERY);
        if self.is_dated.get() && is_due {
            self.execute(include_str!("sql/boot_stamp.sql"), (self.boot, nanos(self.now)))?;
            self.is_stamped = true;
        }
        Ok(())
    }

    /// Forgets what a rolled back piece of work may have made. Numbers that it took stay unused.
    pub(super) fn forget(&mut self) {
        self.queues.clear();
        self.last_queue = None;
        self.topics.clear();
    }

    /// After the commit: remembers what was found, and says whom to tell.
    pub(super) fn committed(self) -> Effects {
        self.known.queues.extend(self.queues);
        if self.is_stamped {
            self.known.stamped = Some(self.now);
        }
        Effects { touched: self.touched, freed_lock: self.freed_lock }
    }
}
