-- Takes back the delayed messages $1, all or none: some may have become available already. Under the fence $3 of the
-- endpoint $2, if there is one.
WITH term AS MATERIALIZED (
    SELECT 1 FROM {schema}.fence AS f JOIN {schema}.endpoint AS e ON e.id = f.endpoint
    WHERE e.name = $2 AND f.fence = $3 FOR SHARE OF f
),
cancellable AS MATERIALIZED (
    SELECT id FROM {schema}.delayed
    WHERE id = ANY ($1) AND NOT retry AND due > (SELECT {schema}.clock_us()) AND ($3 IS NULL OR EXISTS (SELECT 1 FROM term))
    FOR UPDATE
)
DELETE FROM {schema}.delayed
WHERE id = ANY ($1) AND (SELECT count(*) FROM cancellable) = cardinality($1)
RETURNING id
