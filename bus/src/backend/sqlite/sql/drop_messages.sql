DELETE FROM bus_message WHERE id > ?1 AND id <= ?2
