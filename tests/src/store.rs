//! What lies in a SQLite store, read by rusqlite: shares no code with `bus`, so that `bus` does not vouch for itself.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};

/// An endpoint's id is the upper part of its messages' ids.
const SEQUENCE_BITS: u32 = 46;

/// How much of an endpoint is where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Available: not claimed.
    pub ready: u64,
    /// Claimed, whether the claim has run out or not.
    pub claimed: u64,
    /// Waiting for their time.
    pub delayed: u64,
    /// Dead letters.
    pub dead: u64,
}

/// A lock's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Whose.
    pub owner: Vec<u8>,
    /// Its fence.
    pub fence: u64,
    /// `clean`, `cut`, or `None` while the term goes on or has ended without a word.
    pub ended: Option<String>,
    /// Why it was cut.
    pub reason: Option<String>,
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    /// Why it was given up on.
    pub reason: String,
    /// What failed last.
    pub error: Option<String>,
    /// The message as it came.
    pub body: Vec<u8>,
    /// How often it had been claimed.
    pub deliveries: u32,
}

/// A view of a store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
}

impl Store {
    /// Opens the file.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub fn open(file: &Path) -> Store {
        let connection = Connection::open(file).expect("the store can be opened");
        connection.busy_timeout(Duration::from_secs(10)).expect("a connection can be set up");
        Store { connection }
    }

    fn endpoint(&self, name: &str) -> Option<i64> {
        let find = "SELECT id FROM bus_endpoint WHERE name = ?1";
        // Before the first process has made the tables there is nothing.
        self.connection.query_row(find, [name], |row| row.get(0)).optional().unwrap_or(None)
    }

    /// How much of an endpoint is where.
    ///
    /// # Panics
    /// If the store cannot be read.
    pub fn counts(&self, endpoint: &str) -> Counts {
        let Some(id) = self.endpoint(endpoint) else { return Counts::default() };
        let (first, last) = (id << SEQUENCE_BITS, ((id + 1) << SEQUENCE_BITS) - 1);
        let all = "SELECT (SELECT count(*) FROM bus_message WHERE id BETWEEN ?1 AND ?2),
                          (SELECT count(*) FROM bus_claim WHERE id BETWEEN ?1 AND ?2),
                          (SELECT count(*) FROM bus_delayed WHERE endpoint = ?3),
                          (SELECT count(*) FROM bus_dead WHERE endpoint = ?3)";
        let counts = self.connection.query_row(all, (first, last, id), |row| {
            let count = |column| row.get::<_, i64>(column).map(|count| u64::try_from(count).unwrap_or(0));
            let (messages, claimed) = (count(0)?, count(1)?);
            Ok(Counts { ready: messages - claimed, claimed, delayed: count(2)?, dead: count(3)? })
        });
        counts.expect("the store can be read")
    }

    /// Whether nothing of the endpoint is left but dead letters.
    pub fn is_drained(&self, endpoint: &str) -> bool {
        let counts = self.counts(endpoint);
        (counts.ready, counts.claimed, counts.delayed) == (0, 0, 0)
    }

    /// How often each message that is not claimed now has been claimed before.
    ///
    /// # Panics
    /// If the store cannot be read.
    pub fn deliveries_of_ready(&self, endpoint: &str) -> Vec<u32> {
        let Some(id) = self.endpoint(endpoint) else { return Vec::new() };
        let (first, last) = (id << SEQUENCE_BITS, ((id + 1) << SEQUENCE_BITS) - 1);
        let all = "SELECT deliveries FROM bus_message WHERE id BETWEEN ?1 AND ?2
                   AND id NOT IN (SELECT id FROM bus_claim)";
        let mut statement = self.connection.prepare(all).expect("the store can be read");
        let found = statement.query_map((first, last), |row| row.get(0)).expect("the store can be read");
        found.map(|count| count.expect("a count")).collect()
    }

    /// A lock's record.
    ///
    /// # Panics
    /// If the store cannot be read.
    pub fn lock(&self, id: &str) -> Option<Lock> {
        let find = "SELECT owner, fence, ended, reason FROM bus_lock WHERE id = ?1";
        let found = self.connection.query_row(find, [id], |row| {
            let fence: i64 = row.get(1)?;
            let fence = u64::try_from(fence).unwrap_or(0);
            Ok(Lock { owner: row.get(0)?, fence, ended: row.get(2)?, reason: row.get(3)? })
        });
        found.optional().unwrap_or(None)
    }

    /// Gives a lock to somebody who does not exist, until its lease has run out.
    ///
    /// # Panics
    /// If there is no such lock, or the store cannot be written to.
    pub fn steal_lock(&self, id: &str) {
        let steal = "UPDATE bus_lock SET owner = randomblob(16), fence = fence + 1 WHERE id = ?1";
        assert_eq!(self.connection.execute(steal, [id]).expect("the store can be written to"), 1);
    }

    /// An endpoint's dead letters, oldest first.
    ///
    /// # Panics
    /// If the store cannot be read.
    pub fn dead(&self, endpoint: &str) -> Vec<Dead> {
        let Some(id) = self.endpoint(endpoint) else { return Vec::new() };
        let all = "SELECT reason, error, body, deliveries FROM bus_dead WHERE endpoint = ?1 ORDER BY death";
        let mut statement = self.connection.prepare(all).expect("the store can be read");
        let found = statement.query_map([id], |row| {
            Ok(Dead { reason: row.get(0)?, error: row.get(1)?, body: row.get(2)?, deliveries: row.get(3)? })
        });
        found.expect("the store can be read").map(|dead| dead.expect("a dead letter")).collect()
    }

    /// The headers of an endpoint's messages, as the JSON they are kept as, in the order they were sent.
    ///
    /// # Panics
    /// If the store cannot be read.
    pub fn headers(&self, endpoint: &str) -> Vec<String> {
        let Some(id) = self.endpoint(endpoint) else { return Vec::new() };
        let (first, last) = (id << SEQUENCE_BITS, ((id + 1) << SEQUENCE_BITS) - 1);
        let all = "SELECT coalesce(headers, '') FROM bus_message WHERE id BETWEEN ?1 AND ?2 ORDER BY id";
        let mut statement = self.connection.prepare(all).expect("the store can be read");
        let found = statement.query_map((first, last), |row| row.get(0)).expect("the store can be read");
        found.map(|headers| headers.expect("headers")).collect()
    }
}
