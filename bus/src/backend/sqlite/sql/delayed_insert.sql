INSERT INTO bus_delayed (id, endpoint, due, retry, uuid, type, headers, sent_at, ttl, body)
VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, ?8, ?9)
