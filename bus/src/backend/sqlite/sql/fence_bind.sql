UPDATE bus_fence SET until = max(until, ?2), boot = ?3 WHERE endpoint = ?1
