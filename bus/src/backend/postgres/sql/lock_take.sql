-- A new term of a lock whose record is still what was seen ($4 owner, $5 fence, $6 renewed_at) and is free: cleanly
-- released, run out by the server's clock, or known by us to be dead ($7).
UPDATE {schema}.lock
SET owner = $2, fence = greatest(fence + 1, {schema}.clock_us()), lease = $3, renewed_at = {schema}.clock_us(),
    ended = NULL, reason = NULL
WHERE id = $1 AND owner = $4 AND fence = $5 AND renewed_at = $6
  AND (ended = 'clean' OR renewed_at + lease <= {schema}.clock_us() OR $7)
RETURNING fence
