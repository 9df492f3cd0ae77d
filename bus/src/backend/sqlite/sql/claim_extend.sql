UPDATE bus_claim SET until = ?3, boot = ?4 WHERE id = ?1 AND token = ?2
