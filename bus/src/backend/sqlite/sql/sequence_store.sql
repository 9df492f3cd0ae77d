UPDATE bus_sequence SET next = ?1 WHERE one = 1
