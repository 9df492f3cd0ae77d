-- When the first available message of one endpoint was sent.
SELECT m.sent_at FROM bus_message AS m
WHERE m.id > ?1 AND m.id <= ?2
  AND NOT EXISTS (SELECT 1 FROM bus_claim AS c WHERE c.id = m.id)
ORDER BY m.id LIMIT 1
