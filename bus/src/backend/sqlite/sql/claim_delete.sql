DELETE FROM bus_claim WHERE id = ?1
