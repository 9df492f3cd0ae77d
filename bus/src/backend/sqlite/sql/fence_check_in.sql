-- Changes nothing, but takes the write lock for as long as the transaction lasts: nobody raises the fence meanwhile.
UPDATE bus_fence SET fence = fence
WHERE endpoint = (SELECT id FROM bus_endpoint WHERE name = ?1) AND fence = ?2
