-- Whether something of this endpoint is in flight, until when, and which message of it goes first since it has been
-- tried before, with its time.
SELECT
    EXISTS (SELECT 1 FROM bus_claim WHERE id > ?1 AND id <= ?2),
    (SELECT min(until) FROM bus_claim WHERE id > ?1 AND id <= ?2),
    (SELECT id FROM bus_delayed WHERE endpoint = ?3 AND retry ORDER BY id LIMIT 1),
    (SELECT due FROM bus_delayed WHERE endpoint = ?3 AND retry ORDER BY id LIMIT 1)
