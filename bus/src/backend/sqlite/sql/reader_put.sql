INSERT INTO bus_reader (endpoint, read_at, retention) VALUES (?1, ?2, ?3)
ON CONFLICT (endpoint) DO UPDATE SET read_at = ?2, retention = ?3
