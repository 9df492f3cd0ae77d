-- Keeps the row of the endpoint $1 bound for $3, while the fence $2 is in force. Answers whether it could: not while a
-- transaction has checked in, which may last, and during which nobody else can have the row either. No row: the fence is
-- not in force.
WITH free AS MATERIALIZED (
    SELECT endpoint FROM {schema}.fence WHERE endpoint = $1 AND fence = $2 FOR NO KEY UPDATE SKIP LOCKED
),
bound AS (
    UPDATE {schema}.fence AS f SET until = greatest(f.until, {schema}.clock_us() + $3) FROM free
    WHERE f.endpoint = free.endpoint RETURNING 1
)
SELECT EXISTS (SELECT 1 FROM bound) FROM {schema}.fence WHERE endpoint = $1 AND fence = $2
