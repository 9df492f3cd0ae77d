DELETE FROM bus_claim WHERE id = ?1 AND token = ?2
