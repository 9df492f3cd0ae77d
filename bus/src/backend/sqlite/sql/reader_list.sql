SELECT e.id, e.name, r.read_at, r.retention FROM bus_endpoint AS e LEFT JOIN bus_reader AS r ON r.endpoint = e.id
