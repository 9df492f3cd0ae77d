-- Version 1. {schema} is the schema's name. All times are microseconds since 1970 by the server's clock, but for a
-- message's `sent_at`, which is the sender's.

-- Names this store, so that two addresses of one database are known to be one; and the version of its tables.
CREATE TABLE IF NOT EXISTS {schema}.store (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    id      uuid NOT NULL DEFAULT gen_random_uuid(),
    version integer NOT NULL
);

CREATE OR REPLACE FUNCTION {schema}.clock_us() RETURNS bigint LANGUAGE sql VOLATILE
    AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint';

-- Queues (topic is NULL) and subscriptions. Ids are drawn at random: one that comes from a table that has been dropped
-- since never names another endpoint.
CREATE TABLE IF NOT EXISTS {schema}.endpoint (
    id    bigint PRIMARY KEY DEFAULT (floor(random() * 9007199254740992))::bigint + 1,
    name  text NOT NULL UNIQUE,
    topic text
);
CREATE INDEX IF NOT EXISTS endpoint_topic ON {schema}.endpoint (topic) WHERE topic IS NOT NULL;

-- Who reads an endpoint: when a host has last said so, and how long the endpoint keeps what waits there.
CREATE TABLE IF NOT EXISTS {schema}.reader (
    endpoint  bigint PRIMARY KEY,
    read_at   bigint NOT NULL,
    retention bigint
) WITH (fillfactor = 50);

-- Subscriptions that have been dropped, and when: whatever lies under such a number is to be dropped too.
CREATE TABLE IF NOT EXISTS {schema}.dropped (
    endpoint bigint PRIMARY KEY,
    since    bigint NOT NULL
);

-- Numbers messages of all endpoints, in the order of sending as seen by one sender.
CREATE SEQUENCE IF NOT EXISTS {schema}.message_id;

-- Available and claimed messages. A claim changes the row in place: no index has a column that it writes, and half of
-- each page is left free for the new version. `token` names the claim, `until` is when it ends; it is 0 as long as a
-- message was never claimed, and 1 when it is available again: no retention applies to it then. Dead rows are what slows a queue down, so that they are cleaned away early.
CREATE TABLE IF NOT EXISTS {schema}.message (
    endpoint      bigint NOT NULL,
    id            bigint NOT NULL DEFAULT nextval('{schema}.message_id'),
    until         bigint NOT NULL DEFAULT 0,
    token         bigint,
    fence         bigint,
    sent_at       bigint NOT NULL,
    ttl           bigint,
    deliveries    integer NOT NULL DEFAULT 0,
    failures      integer NOT NULL DEFAULT 0,
    crashes       integer NOT NULL DEFAULT 0,
    alone         boolean NOT NULL DEFAULT false,
    crashed_alone boolean NOT NULL DEFAULT false,
    uuid          uuid NOT NULL,
    type          text NOT NULL,
    headers       text,
    error         text,
    body          bytea NOT NULL,
    PRIMARY KEY (endpoint, id)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 100000
);

-- Messages that wait for their time; `retry` says that they have been tried before.
CREATE TABLE IF NOT EXISTS {schema}.delayed (
    id            bigint PRIMARY KEY,
    endpoint      bigint NOT NULL,
    due           bigint NOT NULL,
    retry         boolean NOT NULL,
    sent_at       bigint NOT NULL,
    ttl           bigint,
    deliveries    integer NOT NULL DEFAULT 0,
    failures      integer NOT NULL DEFAULT 0,
    crashes       integer NOT NULL DEFAULT 0,
    crashed_alone boolean NOT NULL DEFAULT false,
    uuid          uuid NOT NULL,
    type          text NOT NULL,
    headers       text,
    error         text,
    body          bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS delayed_due ON {schema}.delayed (endpoint, due);

-- Messages that were given up on, in the order of their deaths.
CREATE TABLE IF NOT EXISTS {schema}.dead (
    death      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint   bigint NOT NULL,
    dead_since bigint NOT NULL,
    sent_at    bigint NOT NULL,
    ttl        bigint,
    deliveries integer NOT NULL,
    uuid       uuid NOT NULL,
    type       text NOT NULL,
    headers    text,
    reason     text NOT NULL,
    error      text,
    body       bytea NOT NULL
);
CREATE INDEX IF NOT EXISTS dead_page ON {schema}.dead (endpoint, death);
CREATE INDEX IF NOT EXISTS dead_uuid ON {schema}.dead (endpoint, uuid);

-- Endpoints that are read in strict order: the message that is next, or in flight, or waits for its retry. Its row is
-- locked by each claim, so that there is one at a time.
CREATE TABLE IF NOT EXISTS {schema}.strict (
    endpoint bigint PRIMARY KEY,
    head     bigint
) WITH (fillfactor = 50);

-- Singleton endpoints: which term may touch them, under which lock, bound to it until when.
CREATE TABLE IF NOT EXISTS {schema}.fence (
    endpoint bigint PRIMARY KEY,
    lock     text NOT NULL,
    fence    bigint NOT NULL,
    until    bigint NOT NULL
) WITH (fillfactor = 50);

-- Locks. A row is never deleted, since its fence has to outlive every term. `ended` is NULL while the term runs.
CREATE TABLE IF NOT EXISTS {schema}.lock (
    id         text PRIMARY KEY,
    owner      uuid NOT NULL,
    fence      bigint NOT NULL,
    lease      bigint NOT NULL,
    renewed_at bigint NOT NULL,
    ended      text CHECK (ended IN ('clean', 'cut')),
    reason     text,
    note       bytea NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

-- Stores one message within the caller's transaction. What waits for it is told when that commits, unless `tell` is
-- false: Postgres lets transactions that tell something commit one after the other only, in the whole database.
CREATE OR REPLACE FUNCTION {schema}.put(
    target text, to_topic boolean, id uuid, type text, headers text, sent_at bigint, ttl bigint, due bigint, body bytea,
    tell boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    reader bigint;
BEGIN
    IF NOT to_topic THEN
        INSERT INTO {schema}.endpoint (name) VALUES (put.target) ON CONFLICT (name) DO NOTHING;
    END IF;
    FOR reader IN
        SELECT e.id FROM {schema}.endpoint AS e
        WHERE CASE WHEN put.to_topic THEN e.topic = put.target ELSE e.name = put.target END
    LOOP
        IF put.due IS NULL OR put.due <= {schema}.clock_us() THEN
            INSERT INTO {schema}.message (endpoint, sent_at, ttl, uuid, type, headers, body)
            VALUES (reader, put.sent_at, put.ttl, put.id, put.type, put.headers, put.body);
        ELSE
            INSERT INTO {schema}.delayed (id, endpoint, due, retry, sent_at, ttl, uuid, type, headers, body)
            VALUES (nextval('{schema}.message_id'), reader, put.due, false, put.sent_at, put.ttl, put.id, put.type,
                    put.headers, put.body);
        END IF;
    END LOOP;
    IF put.tell THEN
        PERFORM pg_notify('{schema}', '- ' || CASE WHEN put.to_topic THEN 't/' ELSE 'q/' END || put.target);
    END IF;
END
$$;

-- For the user's own SQL: a command for a queue, whose body is the text's bytes (UTF-8), mostly JSON. Answers its id.
CREATE OR REPLACE FUNCTION {schema}.send(queue text, body text, headers jsonb DEFAULT NULL, tell boolean DEFAULT true)
RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    id uuid := gen_random_uuid();
BEGIN
    IF queue !~ '^[a-z0-9]+(-[a-z0-9]+)*$' OR length(queue) > 63 THEN
        RAISE EXCEPTION '% cannot be a queue: write 1 to 63 of a-z, 0-9 and single inner dashes', quote_literal(queue)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF EXISTS (SELECT 1 FROM jsonb_each(send.headers) AS h(name, value)
               WHERE jsonb_typeof(h.value) <> 'string' OR h.name LIKE 'bus-%') THEN
        RAISE EXCEPTION 'headers are texts, and their names do not begin with bus-'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM {schema}.put(queue, false, id, '', send.headers::text, {schema}.clock_us(), NULL, NULL,
                         convert_to(send.body, 'UTF8'), tell);
    RETURN id;
END
$$;
