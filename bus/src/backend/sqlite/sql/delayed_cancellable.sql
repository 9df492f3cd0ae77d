SELECT EXISTS (SELECT 1 FROM bus_delayed WHERE id = ?1 AND NOT retry AND due > ?2)
