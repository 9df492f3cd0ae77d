-- The next number that no endpoint has, or has had.
INSERT INTO bus_endpoint (id, name, topic)
VALUES (1 + max((SELECT coalesce(max(id), 0) FROM bus_endpoint), (SELECT coalesce(max(endpoint), 0) FROM bus_reader)), ?1, ?2)
RETURNING id
