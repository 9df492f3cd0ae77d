UPDATE {schema}.lock SET ended = 'clean', reason = NULL WHERE id = $1 AND owner = $2 AND ended IS NULL RETURNING 1
