SELECT id FROM bus_endpoint WHERE topic = ?1 ORDER BY id
