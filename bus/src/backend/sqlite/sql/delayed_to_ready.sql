-- Makes a message available, in the place ?2.
INSERT INTO bus_message
    (id, uuid, type, headers, sent_at, ttl, deliveries, failures, crashes, crashed_alone, error, body)
SELECT ?2, uuid, type, headers, sent_at, ttl, deliveries, failures, crashes, crashed_alone, error, body
FROM bus_delayed WHERE id = ?1
