-- Drops the subscription $1 with all that is in it, if no host has attended to it within the last $2. Answers, if it is
-- there, how long ago one has, and whether it is gone.
WITH found AS MATERIALIZED (
    SELECT e.id, {schema}.clock_us() - r.read_at AS attended
    FROM {schema}.endpoint AS e LEFT JOIN {schema}.reader AS r ON r.endpoint = e.id
    WHERE e.name = $1 AND e.topic IS NOT NULL
    FOR UPDATE OF e
),
gone AS (
    DELETE FROM {schema}.endpoint AS e USING found
    WHERE e.id = found.id AND (found.attended IS NULL OR found.attended >= $2)
    RETURNING e.id
),
m AS (DELETE FROM {schema}.message USING gone WHERE endpoint = gone.id),
d AS (DELETE FROM {schema}.delayed USING gone WHERE endpoint = gone.id),
x AS (DELETE FROM {schema}.dead USING gone WHERE endpoint = gone.id),
f AS (DELETE FROM {schema}.fence USING gone WHERE endpoint = gone.id),
s AS (DELETE FROM {schema}.strict USING gone WHERE endpoint = gone.id),
r AS (DELETE FROM {schema}.reader USING gone WHERE endpoint = gone.id)
SELECT found.attended, EXISTS (SELECT 1 FROM gone) FROM found
