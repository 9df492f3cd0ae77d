-- Lets a message that was tried wait for its next attempt.
INSERT INTO bus_delayed
    (id, endpoint, due, retry, uuid, type, headers, sent_at, ttl, deliveries, failures, crashes, crashed_alone, error, body)
SELECT id, ?2, ?3, 1, uuid, type, headers, sent_at, ttl, ?4, ?5, ?6, ?7, coalesce(?8, error), body
FROM bus_message WHERE id = ?1
