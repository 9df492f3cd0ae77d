-- Has a message stay, whatever its subscription's retention is.
UPDATE bus_message SET kept = 1 WHERE id = ?1
