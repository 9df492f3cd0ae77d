-- Tables of version 1. All begin with bus_, so that the user's own tables fit into the same file.

-- Queues (topic is NULL) and subscriptions. The id is the upper half of every message's id.
CREATE TABLE bus_endpoint (
    id    INTEGER PRIMARY KEY,
    name  TEXT NOT NULL UNIQUE,
    topic TEXT
) STRICT;
CREATE INDEX bus_endpoint_topic ON bus_endpoint (topic) WHERE topic IS NOT NULL;

-- The lower half of the next message's id: one counter for all endpoints, never reset.
CREATE TABLE bus_sequence (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    next INTEGER NOT NULL
) STRICT;
INSERT INTO bus_sequence (one, next) VALUES (1, 1);

-- Runs of the machine's kernel: times of the boot clock are comparable within one of them only.
CREATE TABLE bus_boot (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- Available and claimed messages. No other index: each would cost every send and every settlement a write.
-- A row is written once and never changed by a claim, however large its body.
CREATE TABLE bus_message (
    id            INTEGER PRIMARY KEY,
    uuid          BLOB NOT NULL,
    type          TEXT NOT NULL,
    headers       TEXT,
    sent_at       INTEGER NOT NULL,
    ttl           INTEGER,
    deliveries    INTEGER NOT NULL DEFAULT 0,
    failures      INTEGER NOT NULL DEFAULT 0,
    crashes       INTEGER NOT NULL DEFAULT 0,
    crashed_alone INTEGER NOT NULL DEFAULT 0,
    error         TEXT,
    body          BLOB NOT NULL
) STRICT;

-- Claims: as many rows as there are messages in flight. The counts are those with this claim included.
CREATE TABLE bus_claim (
    id            INTEGER PRIMARY KEY,
    token         INTEGER NOT NULL,
    until         INTEGER NOT NULL,
    boot          INTEGER NOT NULL,
    fence         INTEGER,
    deliveries    INTEGER NOT NULL,
    failures      INTEGER NOT NULL,
    crashes       INTEGER NOT NULL,
    alone         INTEGER NOT NULL DEFAULT 0,
    crashed_alone INTEGER NOT NULL
) STRICT;

-- Messages that wait for their time; `retry` says that they have been tried before.
CREATE TABLE bus_delayed (
    id            INTEGER PRIMARY KEY,
    endpoint      INTEGER NOT NULL,
    due           INTEGER NOT NULL,
    retry         INTEGER NOT NULL,
    uuid          BLOB NOT NULL,
    type          TEXT NOT NULL,
    headers       TEXT,
    sent_at       INTEGER NOT NULL,
    ttl           INTEGER,
    deliveries    INTEGER NOT NULL DEFAULT 0,
    failures      INTEGER NOT NULL DEFAULT 0,
    crashes       INTEGER NOT NULL DEFAULT 0,
    crashed_alone INTEGER NOT NULL DEFAULT 0,
    error         TEXT,
    body          BLOB NOT NULL
) STRICT;
CREATE INDEX bus_delayed_due ON bus_delayed (endpoint, due);
CREATE INDEX bus_delayed_retry ON bus_delayed (endpoint) WHERE retry;

-- Messages that were given up on, in the order of their deaths.
CREATE TABLE bus_dead (
    death      INTEGER PRIMARY KEY AUTOINCREMENT,
    endpoint   INTEGER NOT NULL,
    uuid       BLOB NOT NULL,
    type       TEXT NOT NULL,
    headers    TEXT,
    sent_at    INTEGER NOT NULL,
    ttl        INTEGER,
    deliveries INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    error      TEXT,
    dead_since INTEGER NOT NULL,
    body       BLOB NOT NULL
) STRICT;
CREATE INDEX bus_dead_page ON bus_dead (endpoint, death);
CREATE INDEX bus_dead_uuid ON bus_dead (endpoint, uuid);

-- Singleton endpoints: which term may touch them, under which lock, bound to it until when.
CREATE TABLE bus_fence (
    endpoint INTEGER PRIMARY KEY,
    lock     TEXT NOT NULL,
    fence    INTEGER NOT NULL,
    until    INTEGER NOT NULL,
    boot     INTEGER NOT NULL
) STRICT;

-- Locks. A row is never deleted, since its fence has to outlive every term. `ended` is NULL while the term runs.
CREATE TABLE bus_lock (
    id         TEXT PRIMARY KEY,
    owner      BLOB NOT NULL,
    fence      INTEGER NOT NULL,
    lease      INTEGER NOT NULL,
    renewed_at INTEGER NOT NULL,
    boot       INTEGER NOT NULL,
    ended      TEXT CHECK (ended IN ('clean', 'cut')),
    reason     TEXT,
    note       BLOB NOT NULL DEFAULT x''
) STRICT, WITHOUT ROWID;
