SELECT seen FROM bus_boot WHERE id = ?1
