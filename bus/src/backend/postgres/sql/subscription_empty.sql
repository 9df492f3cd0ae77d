-- Drops up to $3 messages of the subscription $1, if no host has attended to it within the last $2; answers how many.
WITH found AS MATERIALIZED (
    SELECT e.id FROM {schema}.endpoint AS e LEFT JOIN {schema}.reader AS r ON r.endpoint = e.id
    WHERE e.name = $1 AND e.topic IS NOT NULL
      AND (r.read_at IS NULL OR r.read_at <= {schema}.clock_us() - $2)
),
part AS MATERIALIZED (
    SELECT m.endpoint, m.id FROM found JOIN {schema}.message AS m ON m.endpoint = found.id ORDER BY m.id LIMIT $3
),
gone AS (
    DELETE FROM {schema}.message AS m USING part WHERE m.endpoint = part.endpoint AND m.id = part.id RETURNING 1
)
SELECT count(*) FROM gone
