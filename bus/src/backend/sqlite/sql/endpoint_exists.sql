-- Whether an endpoint is there.
SELECT 1 FROM bus_endpoint WHERE id = ?1
