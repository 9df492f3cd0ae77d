-- Drops those of the first ?4 available messages of one endpoint that were sent before ?3 and have never been claimed
-- nor put back.
DELETE FROM bus_message WHERE id IN (
    SELECT id FROM (
        SELECT m.id, m.sent_at, m.deliveries, m.kept FROM bus_message AS m
        WHERE m.id > ?1 AND m.id <= ?2
          AND NOT EXISTS (SELECT 1 FROM bus_claim AS c WHERE c.id = m.id)
        ORDER BY m.id LIMIT ?4
    ) WHERE deliveries = 0 AND kept IS NULL AND sent_at < ?3
)
