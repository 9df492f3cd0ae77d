SELECT uuid, type, headers, sent_at, ttl, deliveries, reason, error, dead_since, body
FROM bus_dead WHERE endpoint = ?1 AND death > ?2 ORDER BY death LIMIT ?3
