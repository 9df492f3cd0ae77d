-- Records that the run of the claim $2, $3 of the endpoint $1 is made alone, in the term $4 or none.
WITH term AS MATERIALIZED (SELECT 1 FROM {schema}.fence WHERE endpoint = $1 AND fence = $4 FOR SHARE)
UPDATE {schema}.message SET alone = true
WHERE endpoint = $1 AND id = $2 AND token = $3 AND ($4 IS NULL OR EXISTS (SELECT 1 FROM term))
RETURNING id
