SELECT EXISTS (SELECT 1 FROM bus_claim WHERE id = ?1 AND token = ?2)
