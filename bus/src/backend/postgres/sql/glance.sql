-- After a claim in vain: whether the endpoint $1 still goes by the name $4, the fence in force, and in how long the
-- next thing changes by itself. $2 is where to begin; in flight is what lies first.
SELECT EXISTS (SELECT 1 FROM {schema}.endpoint AS e WHERE e.id = $1 AND e.name = $4),
       (SELECT f.fence FROM {schema}.fence AS f WHERE f.endpoint = $1 AND $3),
       (SELECT min(until) FROM (SELECT m.until FROM {schema}.message AS m WHERE m.endpoint = $1 AND m.id > $2
                                ORDER BY m.id LIMIT 1000) AS first WHERE until > clock.now) - clock.now,
       (SELECT d.due FROM {schema}.delayed AS d WHERE d.endpoint = $1 ORDER BY d.due LIMIT 1) - clock.now
FROM (SELECT {schema}.clock_us() AS now) AS clock
