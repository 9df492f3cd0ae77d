UPDATE bus_message
SET deliveries = ?2, failures = ?3, crashes = ?4, crashed_alone = ?5, error = coalesce(?6, error)
WHERE id = ?1
