SELECT id FROM bus_boot WHERE name = ?1
