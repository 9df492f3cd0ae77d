UPDATE bus_boot SET seen = ?2 WHERE id = ?1
