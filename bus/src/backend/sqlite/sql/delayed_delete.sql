DELETE FROM bus_delayed WHERE id = ?1
