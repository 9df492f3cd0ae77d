-- Hosts have processors of endpoints, now: $1 names, $2 retentions. In the order of the rows, so that two hosts do not wait
-- for each other; and locked, so that whoever drops one meanwhile either sees this or has done so.
INSERT INTO {schema}.reader AS r (endpoint, read_at, retention)
SELECT e.id, {schema}.clock_us(), a.retention
FROM unnest($1, $2) AS a(name, retention) JOIN {schema}.endpoint AS e ON e.name = a.name
ORDER BY e.id FOR KEY SHARE OF e
ON CONFLICT (endpoint) DO UPDATE SET read_at = excluded.read_at, retention = excluded.retention
