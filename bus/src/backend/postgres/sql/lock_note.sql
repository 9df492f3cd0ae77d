UPDATE {schema}.lock SET note = $4 WHERE id = $1 AND owner = $2 AND fence = $3 AND ended IS NULL
