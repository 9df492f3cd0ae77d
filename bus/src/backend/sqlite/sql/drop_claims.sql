DELETE FROM bus_claim WHERE id > ?1 AND id <= ?2
