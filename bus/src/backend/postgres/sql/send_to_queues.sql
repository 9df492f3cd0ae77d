-- Stores messages that are available at once, each in its queue. A queue that is not there (any more) refuses them all.
INSERT INTO {schema}.message (endpoint, uuid, type, headers, sent_at, ttl, body)
SELECT e.id, s.uuid, s.type, s.headers, s.sent_at, s.ttl, s.body
FROM unnest($1, $2, $3, $4, $5, $6, $7) WITH ORDINALITY AS s(queue, uuid, type, headers, sent_at, ttl, body, place)
LEFT JOIN {schema}.endpoint AS e ON e.name = s.queue
ORDER BY s.place
