-- Whether something of this endpoint is in flight or waits for its retry: then nothing behind it may pass.
SELECT EXISTS (SELECT 1 FROM bus_claim WHERE id > ?1 AND id <= ?2)
    OR EXISTS (SELECT 1 FROM bus_delayed WHERE endpoint = ?3 AND retry)
