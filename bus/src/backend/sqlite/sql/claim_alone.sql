UPDATE bus_claim SET alone = 1 WHERE id = ?1 AND token = ?2
