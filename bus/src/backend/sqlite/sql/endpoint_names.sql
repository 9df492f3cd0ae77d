SELECT name FROM bus_endpoint ORDER BY name
