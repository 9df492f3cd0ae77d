-- Stores messages of every kind: $1 target; $2 whether it is a topic; $3 to $7 what is known about the message; $8 due
-- in, $9 due at; $10 body; $11, $12 the singleton's endpoint and fence it is sent under. Answers for each place whose
-- fence is in force the ids of its copies that wait for their time.
WITH clock AS MATERIALIZED (SELECT {schema}.clock_us() AS now),
s AS MATERIALIZED (
    SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) WITH ORDINALITY
        AS s(target, to_topic, uuid, type, headers, sent_at, ttl, due_in, due_at, body, guard, fence, place)
),
term AS MATERIALIZED (
    SELECT e.name, f.fence
    FROM (SELECT DISTINCT guard, fence FROM s WHERE guard IS NOT NULL) AS g
    JOIN {schema}.endpoint AS e ON e.name = g.guard
    JOIN {schema}.fence AS f ON f.endpoint = e.id AND f.fence = g.fence
    FOR SHARE OF f
),
admitted AS MATERIALIZED (
    SELECT s.*, coalesce(s.due_at, clock.now + s.due_in) AS due FROM s, clock
    WHERE s.guard IS NULL OR EXISTS (SELECT 1 FROM term WHERE term.name = s.guard AND term.fence = s.fence)
),
copy AS MATERIALIZED (
    SELECT in_order.*, nextval('{schema}.message_id') AS id
    FROM (
        SELECT a.*, e.id AS reader FROM admitted AS a LEFT JOIN {schema}.endpoint AS e ON e.name = a.target
        WHERE NOT a.to_topic
        UNION ALL
        SELECT a.*, e.id AS reader FROM admitted AS a JOIN {schema}.endpoint AS e ON e.topic = a.target
        WHERE a.to_topic
        ORDER BY place
    ) AS in_order
),
available AS (
    INSERT INTO {schema}.message (endpoint, id, uuid, type, headers, sent_at, ttl, body)
    SELECT reader, id, uuid, type, headers, sent_at, ttl, body FROM copy, clock WHERE due IS NULL OR due <= now
),
waiting AS (
    INSERT INTO {schema}.delayed (endpoint, id, due, retry, uuid, type, headers, sent_at, ttl, body)
    SELECT reader, id, due, false, uuid, type, headers, sent_at, ttl, body FROM copy, clock WHERE due > now
)
SELECT a.place, array_remove(array_agg(CASE WHEN c.due > clock.now THEN c.id END), NULL)
FROM clock, admitted AS a LEFT JOIN copy AS c ON c.place = a.place
GROUP BY a.place
