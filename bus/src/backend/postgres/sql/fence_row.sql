SELECT f.lock, f.fence, greatest(f.until - {schema}.clock_us(), 0)
FROM {schema}.fence AS f JOIN {schema}.endpoint AS e ON e.id = f.endpoint WHERE e.name = $1
