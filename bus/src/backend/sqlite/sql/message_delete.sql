DELETE FROM bus_message WHERE id = ?1
