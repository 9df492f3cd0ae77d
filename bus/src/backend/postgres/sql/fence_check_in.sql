-- Locks the row until the caller's transaction ends: nobody raises the fence meanwhile. No row: another is in force.
SELECT 1 FROM {schema}.fence AS f JOIN {schema}.endpoint AS e ON e.id = f.endpoint
WHERE e.name = $1 AND f.fence = $2 FOR SHARE OF f
