SELECT id FROM bus_endpoint WHERE name = ?1
