-- Makes the claims $2, $3 of the endpoint $1 last $4 from now on, in the term $5 or none. Answers those that are
-- ours, with their new ends.
WITH term AS MATERIALIZED (SELECT 1 FROM {schema}.fence WHERE endpoint = $1 AND fence = $5 FOR SHARE)
UPDATE {schema}.message AS m SET until = (SELECT {schema}.clock_us()) + $4 FROM unnest($2, $3) AS s(id, token)
WHERE m.endpoint = $1 AND m.id = s.id AND m.token = s.token AND ($5 IS NULL OR EXISTS (SELECT 1 FROM term))
RETURNING m.id, m.token, m.until
