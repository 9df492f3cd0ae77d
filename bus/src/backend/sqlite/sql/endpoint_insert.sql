INSERT INTO bus_endpoint (name, topic) VALUES (?1, ?2) RETURNING id
