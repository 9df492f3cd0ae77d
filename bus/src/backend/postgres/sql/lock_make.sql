-- The first term of a lock, or the first after its record was removed: with a fence above the one $4 that was seen in it,
-- and above that of the messages' row that is bound to it, should those be ahead of the clock.
INSERT INTO {schema}.lock (id, owner, fence, lease, renewed_at)
SELECT $1, $2, greatest(now, $4 + 1, row.fence + 1), $3, now
FROM (SELECT {schema}.clock_us() AS now) AS clock,
     (SELECT max(f.fence) AS fence FROM {schema}.fence AS f WHERE right(f.lock, length($1) + 1) = '#' || $1) AS row
ON CONFLICT (id) DO NOTHING RETURNING fence
