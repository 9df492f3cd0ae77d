SELECT id, retry FROM bus_delayed WHERE endpoint = ?1 AND due <= ?2 ORDER BY due
