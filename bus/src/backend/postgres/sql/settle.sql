-- Ends claims by any verdict. $1 endpoint; for each claim its id $2, token $3, verdict $4 (0 complete, 1 retry, 2 dead
-- letter, 3 release, 4 expired), time to the next try $5, reason $6 and error $7; $8 the term's fence or NULL. Answers
-- the ids of those that were ours.
WITH clock AS MATERIALIZED (SELECT {schema}.clock_us() AS now),
term AS MATERIALIZED (SELECT 1 FROM {schema}.fence WHERE endpoint = $1 AND fence = $8 FOR SHARE),
-- Locked in their order before anything is written: what is written first and what next goes by the verdict.
s AS MATERIALIZED (
    SELECT s.* FROM unnest($2, $3, $4, $5, $6, $7) AS s(id, token, verdict, after, reason, last_error)
    JOIN {schema}.message AS m ON m.endpoint = $1 AND m.id = s.id AND m.token = s.token
    WHERE $8 IS NULL OR EXISTS (SELECT 1 FROM term)
    ORDER BY s.id FOR UPDATE OF m
),
-- Available at once, in its place. Not 0, as it is of what was never claimed: no retention applies to it any more.
back AS (
    UPDATE {schema}.message AS m
    SET until = 1, token = NULL, fence = NULL, alone = false,
        deliveries = m.deliveries - CASE WHEN s.verdict = 3 THEN 1 ELSE 0 END,
        failures = m.failures + CASE WHEN s.verdict = 1 THEN 1 ELSE 0 END,
        crashes = CASE WHEN s.verdict = 1 AND m.alone THEN 0 ELSE m.crashes END,
        crashed_alone = m.crashed_alone AND NOT (s.verdict = 1 AND m.alone),
        error = coalesce(s.last_error, m.error)
    FROM s
    WHERE m.endpoint = $1 AND m.id = s.id AND m.token = s.token AND (s.verdict = 3 OR (s.verdict = 1 AND s.after = 0))
    RETURNING m.id, s.token
),
gone AS (
    DELETE FROM {schema}.message AS m USING s
    WHERE m.endpoint = $1 AND m.id = s.id AND m.token = s.token
      AND NOT (s.verdict = 3 OR (s.verdict = 1 AND s.after = 0))
    RETURNING m.*, s.verdict, s.after, s.reason, s.last_error
),
waiting AS (
    INSERT INTO {schema}.delayed
        (id, endpoint, due, retry, sent_at, ttl, deliveries, failures, crashes, crashed_alone, uuid, type, headers, error, body)
    SELECT id, endpoint, clock.now + after, true, sent_at, ttl, deliveries, failures + 1,
           CASE WHEN alone THEN 0 ELSE crashes END, crashed_alone AND NOT alone, uuid, type, headers,
           coalesce(last_error, error), body
    FROM gone, clock WHERE verdict = 1
),
buried AS (
    INSERT INTO {schema}.dead (endpoint, dead_since, sent_at, ttl, deliveries, uuid, type, headers, reason, error, body)
    SELECT endpoint, clock.now, sent_at, ttl, deliveries - CASE WHEN verdict = 4 THEN 1 ELSE 0 END, uuid, type, headers,
           coalesce(reason, ''), coalesce(last_error, error), body
    FROM gone, clock WHERE verdict IN (2, 4) ORDER BY id
)
SELECT id, token FROM back UNION ALL SELECT id, token FROM gone
