UPDATE {schema}.lock SET ended = $4, reason = $5 WHERE id = $1 AND owner = $2 AND fence = $3 AND ended IS NULL RETURNING 1
