-- Claims of one endpoint that nobody keeps any more: run out by their own boot's clock (?3), which shows ?4, or made in an
-- earlier term (?5). Walks what is in flight, all of it.
SELECT m.id, m.uuid, m.type, m.headers, m.sent_at, m.ttl,
       c.deliveries, c.failures, c.crashes + 1, c.crashed_alone OR c.alone, m.body
FROM bus_claim AS c
JOIN bus_message AS m ON m.id = c.id
WHERE c.id > ?1 AND c.id <= ?2
  AND ((c.boot = ?3 AND c.until <= ?4) OR c.fence < ?5)
ORDER BY c.id
