-- Claims the one message that may come, in strict order: the head, as long as it is neither done nor dead, else the
-- first. $1 endpoint; $2 the watermark; $3 the new claim's token; $4 its lease; $5 the term's fence or NULL; $6 tokens
-- of claims whose answer was lost.
WITH clock AS MATERIALIZED (SELECT {schema}.clock_us() AS now),
term AS MATERIALIZED (SELECT 1 FROM {schema}.fence WHERE endpoint = $1 AND fence = $5 FOR SHARE),
head AS MATERIALIZED (SELECT head AS id FROM {schema}.strict WHERE endpoint = $1),
next AS MATERIALIZED (
    SELECT CASE
        WHEN EXISTS (SELECT 1 FROM {schema}.message AS m WHERE m.endpoint = $1 AND m.id = head.id)
          OR EXISTS (SELECT 1 FROM {schema}.delayed AS d WHERE d.id = head.id)
        THEN head.id
        ELSE (SELECT w.id FROM {schema}.message AS w WHERE w.endpoint = $1 AND w.id > $2 ORDER BY w.id LIMIT 1)
    END AS id
    FROM head
),
moved_on AS (
    UPDATE {schema}.strict AS s SET head = next.id FROM next
    WHERE s.endpoint = $1 AND next.id IS NOT NULL AND s.head IS DISTINCT FROM next.id
      AND ($5 IS NULL OR EXISTS (SELECT 1 FROM term))
),
claimed AS (
    UPDATE {schema}.message AS m
    SET until = (SELECT now FROM clock) + $4,
        token = $3,
        fence = $5,
        deliveries = m.deliveries + CASE WHEN m.token = ANY ($6) THEN 0 ELSE 1 END,
        crashes = m.crashes + CASE WHEN m.token IS NULL OR m.token = ANY ($6) THEN 0 ELSE 1 END,
        crashed_alone = m.crashed_alone OR m.alone,
        alone = false
    FROM next
    WHERE m.endpoint = $1 AND m.id = next.id
      AND (m.until <= (SELECT now FROM clock) OR m.fence < $5 OR m.token = ANY ($6))
      AND ($5 IS NULL OR EXISTS (SELECT 1 FROM term))
    RETURNING m.id, m.token, m.deliveries, m.failures, m.crashes, m.crashed_alone, m.uuid, m.type, m.headers, m.sent_at, m.ttl, m.body
)
SELECT clock.now, claimed.* FROM claimed, clock
