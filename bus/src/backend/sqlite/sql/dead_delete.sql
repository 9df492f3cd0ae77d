DELETE FROM bus_dead WHERE death = ?1
