-- Raises the row of the endpoint $1 for the lock $2 to the fence $3, bound for $4, if it may be.
INSERT INTO {schema}.fence AS f (endpoint, lock, fence, until)
SELECT e.id, $2, $3, {schema}.clock_us() + $4 FROM {schema}.endpoint AS e WHERE e.name = $1
ON CONFLICT (endpoint) DO UPDATE
SET lock = excluded.lock, fence = excluded.fence, until = {schema}.clock_us() + $4
WHERE (f.lock = excluded.lock AND f.fence <= excluded.fence)
   OR (f.lock <> excluded.lock AND f.fence < excluded.fence AND f.until <= {schema}.clock_us())
RETURNING 1
