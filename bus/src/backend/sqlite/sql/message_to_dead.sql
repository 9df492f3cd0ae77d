INSERT INTO bus_dead (endpoint, uuid, type, headers, sent_at, ttl, deliveries, reason, error, dead_since, body)
SELECT ?2, uuid, type, headers, sent_at, ttl, ?3, ?4, coalesce(?5, error), ?6, body
FROM bus_message WHERE id = ?1
