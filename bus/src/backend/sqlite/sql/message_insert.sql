INSERT INTO bus_message (id, uuid, type, headers, sent_at, ttl, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
