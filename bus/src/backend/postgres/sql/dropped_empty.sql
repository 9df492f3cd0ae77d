-- Drops up to $1 messages of each kind that dropped subscriptions have left; answers how many. A mark goes when nothing has
-- been found for $2: a sender that began before the subscription was dropped may be late.
WITH found AS MATERIALIZED (
    SELECT d.endpoint, d.since,
           ARRAY(SELECT m.id FROM {schema}.message AS m WHERE m.endpoint = d.endpoint ORDER BY m.id LIMIT $1) AS messages,
           ARRAY(SELECT w.id FROM {schema}.delayed AS w WHERE w.endpoint = d.endpoint ORDER BY w.due LIMIT $1) AS waiting,
           ARRAY(SELECT x.death FROM {schema}.dead AS x WHERE x.endpoint = d.endpoint ORDER BY x.death LIMIT $1) AS deaths
    FROM {schema}.dropped AS d
),
m AS (
    DELETE FROM {schema}.message AS m USING (SELECT endpoint, unnest(messages) AS id FROM found) AS part
    WHERE m.endpoint = part.endpoint AND m.id = part.id RETURNING 1
),
w AS (
    DELETE FROM {schema}.delayed AS w USING (SELECT endpoint, unnest(waiting) AS id FROM found) AS part
    WHERE w.endpoint = part.endpoint AND w.id = part.id RETURNING 1
),
x AS (
    DELETE FROM {schema}.dead AS x USING (SELECT endpoint, unnest(deaths) AS death FROM found) AS part
    WHERE x.endpoint = part.endpoint AND x.death = part.death RETURNING 1
),
forgotten AS (
    DELETE FROM {schema}.dropped AS d USING found
    WHERE d.endpoint = found.endpoint AND found.since < {schema}.clock_us() - $2
      AND cardinality(found.messages) + cardinality(found.waiting) + cardinality(found.deaths) = 0
)
SELECT (SELECT count(*) FROM m) + (SELECT count(*) FROM w) + (SELECT count(*) FROM x)
