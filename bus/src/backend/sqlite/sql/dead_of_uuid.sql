SELECT death FROM bus_dead WHERE endpoint = ?1 AND uuid = ?2 ORDER BY death
