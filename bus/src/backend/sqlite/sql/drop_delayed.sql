DELETE FROM bus_delayed WHERE endpoint = ?1
