-- Up to $3 dead letters of an endpoint, oldest first, those after $2. One that is gone was put back with its page:
-- begin anew.
SELECT d.uuid, d.type, d.headers, d.sent_at, d.ttl, d.body, d.deliveries, d.reason, d.error, d.dead_since
FROM {schema}.dead AS d JOIN {schema}.endpoint AS e ON e.id = d.endpoint
WHERE e.name = $1
  AND d.death > coalesce((SELECT max(a.death) FROM {schema}.dead AS a WHERE a.endpoint = e.id AND a.uuid = $2), 0)
ORDER BY d.death LIMIT $3
