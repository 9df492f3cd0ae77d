-- The first term of a lock.
INSERT INTO {schema}.lock (id, owner, fence, lease, renewed_at)
SELECT $1, $2, greatest(now, 1), $3, now FROM (SELECT {schema}.clock_us() AS now) AS clock
ON CONFLICT (id) DO NOTHING RETURNING fence
