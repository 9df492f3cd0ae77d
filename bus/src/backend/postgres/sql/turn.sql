-- Completes what the consumer is done with and claims what comes next, in one statement.
-- $1 endpoint; $2, $3 ids and tokens of the claims to be completed; $4 how many to claim at most; $5 the watermark:
-- below it everything is in flight or dead; $6 the new claim's token; $7 its lease; $8 the term's fence or NULL;
-- $9 tokens of claims whose answer was lost: they are ours, and are had again as if nothing had happened; $10 how many
-- bytes to claim: no further message once they are reached.
-- Picked rows are found again by their place, which costs less than the index does: they are locked, so that none
-- moves. One that was changed after this began has moved already, is not seen there, and is left to the next look back.
-- Answers what was completed in one row, without `now`, and what was claimed in one row each.
WITH clock AS MATERIALIZED (SELECT {schema}.clock_us() AS now),
term AS MATERIALIZED (SELECT 1 FROM {schema}.fence WHERE endpoint = $1 AND fence = $8 FOR SHARE),
completed AS (
    DELETE FROM {schema}.message AS m USING unnest($2, $3) AS s(id, token)
    WHERE m.endpoint = $1 AND m.id = s.id AND m.token = s.token
      AND ($8 IS NULL OR EXISTS (SELECT 1 FROM term))
    RETURNING m.id, m.token
),
picked AS MATERIALIZED (
    SELECT w.ctid AS place, w.id,
           octet_length(w.body) + octet_length(w.type) + coalesce(octet_length(w.headers), 0) AS bytes
    FROM {schema}.message AS w
    WHERE w.endpoint = $1 AND w.id > $5
      AND (w.until <= (SELECT now FROM clock) OR w.fence < $8 OR w.token = ANY ($9))
      AND (w.token IS NULL OR w.token <> ALL ($3))
      AND ($8 IS NULL OR EXISTS (SELECT 1 FROM term))
    ORDER BY w.id LIMIT $4 FOR UPDATE SKIP LOCKED
),
claimed AS (
    UPDATE {schema}.message AS m
    SET until = (SELECT now FROM clock) + $7,
        token = $6,
        fence = $8,
        deliveries = m.deliveries + CASE WHEN m.token = ANY ($9) THEN 0 ELSE 1 END,
        crashes = m.crashes + CASE WHEN m.token IS NULL OR m.token = ANY ($9) THEN 0 ELSE 1 END,
        crashed_alone = m.crashed_alone OR m.alone,
        alone = false
    WHERE m.ctid = ANY (ARRAY(
        SELECT place FROM (SELECT place, sum(bytes) OVER (ORDER BY id) - bytes AS before FROM picked) AS summed
        WHERE before < $10))
    RETURNING m.id, m.token, m.deliveries, m.failures, m.crashes, m.crashed_alone, m.uuid, m.type, m.headers, m.sent_at, m.ttl, m.body
)
SELECT NULL::bigint AS now, NULL::bigint, NULL::bigint, NULL::integer, NULL::integer, NULL::integer, NULL::boolean,
       NULL::uuid, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, array_agg(id), array_agg(token)
FROM completed HAVING count(*) > 0
UNION ALL
SELECT clock.now, claimed.*, NULL, NULL FROM claimed, clock
