-- The next available messages of one endpoint, in order: ?1 is where to begin (the watermark), ?2 the endpoint's last
-- possible id. What is passed over is in flight, so that the cost does not depend on what waits behind. Whoever has
-- enough stops reading: with a bound LIMIT, SQLite would compile the statement anew each time.
SELECT m.id, m.uuid, m.type, m.headers, m.sent_at, m.ttl, m.deliveries, m.failures, m.crashes, m.crashed_alone, m.body
FROM bus_message AS m
WHERE m.id > ?1 AND m.id <= ?2
  AND NOT EXISTS (SELECT 1 FROM bus_claim AS c WHERE c.id = m.id)
ORDER BY m.id
