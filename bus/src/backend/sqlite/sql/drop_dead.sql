DELETE FROM bus_dead WHERE endpoint = ?1
