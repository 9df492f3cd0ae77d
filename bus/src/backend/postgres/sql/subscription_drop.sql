-- Drops the subscription $1, which is locked, if no host has attended to it within the last $2: nothing is published to it
-- any more, and whoever prepares it makes another. A mark says that what is in it is still to be dropped. Answers, if it is
-- there, how long ago a host has attended to it, and whether it is gone.
WITH found AS MATERIALIZED (
    SELECT e.id, {schema}.clock_us() - r.read_at AS attended
    FROM {schema}.endpoint AS e LEFT JOIN {schema}.reader AS r ON r.endpoint = e.id
    WHERE e.name = $1 AND e.topic IS NOT NULL
),
gone AS (
    DELETE FROM {schema}.endpoint AS e USING found
    WHERE e.id = found.id AND (found.attended IS NULL OR found.attended >= $2)
    RETURNING e.id
),
marked AS (INSERT INTO {schema}.dropped (endpoint, since) SELECT id, {schema}.clock_us() FROM gone),
f AS (DELETE FROM {schema}.fence USING gone WHERE endpoint = gone.id),
s AS (DELETE FROM {schema}.strict USING gone WHERE endpoint = gone.id),
r AS (DELETE FROM {schema}.reader USING gone WHERE endpoint = gone.id)
SELECT found.attended, EXISTS (SELECT 1 FROM gone) FROM found
