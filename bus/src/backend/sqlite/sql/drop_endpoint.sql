DELETE FROM bus_endpoint WHERE id = ?1
