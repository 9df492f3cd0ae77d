-- Drops, of the first $1 available messages of each endpoint with a retention, those that are older and have never been
-- claimed nor put back (their `until` is 0). Messages lie about in the order of their sending, so that the first are the oldest.
WITH clock AS MATERIALIZED (SELECT {schema}.clock_us() AS now),
first AS MATERIALIZED (
    SELECT r.endpoint, r.retention, w.id, w.sent_at, w.until
    FROM {schema}.reader AS r CROSS JOIN LATERAL (
        SELECT m.id, m.sent_at, m.until FROM {schema}.message AS m
        WHERE m.endpoint = r.endpoint AND m.until <= (SELECT now FROM clock)
        ORDER BY m.id LIMIT $1
    ) AS w
    WHERE r.retention IS NOT NULL
),
old AS MATERIALIZED (
    SELECT m.endpoint, m.id
    FROM first JOIN {schema}.message AS m ON m.endpoint = first.endpoint AND m.id = first.id
    WHERE first.until = 0 AND first.sent_at < (SELECT now FROM clock) - first.retention
    FOR UPDATE OF m SKIP LOCKED
),
gone AS (
    DELETE FROM {schema}.message AS m USING old
    WHERE m.endpoint = old.endpoint AND m.id = old.id AND m.until = 0
    RETURNING m.endpoint
)
SELECT e.name, count(*) FROM gone JOIN {schema}.endpoint AS e ON e.id = gone.endpoint GROUP BY e.name
