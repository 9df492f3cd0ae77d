-- Another lease for the term that $1, $2, $3 name. Not after it has run out, even if nobody has taken it: only a fresh
-- acquisition has a new fence. Unless its holder knows better ($5): the server's clock may have been set.
UPDATE {schema}.lock SET renewed_at = {schema}.clock_us(), lease = $4
WHERE id = $1 AND owner = $2 AND fence = $3 AND ended IS NULL AND ($5 OR renewed_at + lease > {schema}.clock_us())
RETURNING fence
