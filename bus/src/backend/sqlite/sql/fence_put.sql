INSERT OR REPLACE INTO bus_fence (endpoint, lock, fence, until, boot) VALUES (?1, ?2, ?3, ?4, ?5)
