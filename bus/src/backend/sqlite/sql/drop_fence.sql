DELETE FROM bus_fence WHERE endpoint = ?1
