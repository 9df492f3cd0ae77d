-- Makes up to $2 messages of the endpoint $1 available that are due: a retry in its own place, anything else behind
-- what is there already. A retry's `until` is not 0, as it is of what was never claimed: no retention applies to it.
WITH due AS (
    DELETE FROM {schema}.delayed AS d WHERE d.id = ANY (ARRAY(
        SELECT w.id FROM {schema}.delayed AS w
        WHERE w.endpoint = $1 AND w.due <= (SELECT {schema}.clock_us())
        ORDER BY w.due LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING d.*
)
INSERT INTO {schema}.message
    (endpoint, id, until, sent_at, ttl, deliveries, failures, crashes, crashed_alone, uuid, type, headers, error, body)
SELECT endpoint, CASE WHEN retry THEN id ELSE nextval('{schema}.message_id') END,
       CASE WHEN retry THEN 1 ELSE 0 END,
       sent_at, ttl, deliveries, failures, crashes, crashed_alone, uuid, type, headers, error, body
FROM (SELECT * FROM due ORDER BY due.due, due.id) AS in_order
RETURNING id
