SELECT read_at FROM bus_reader WHERE endpoint = ?1
