-- Each endpoint: how long ago its first available message was sent, how long ago a host attended to it, its retention.
SELECT e.name,
       (SELECT clock.now - m.sent_at FROM {schema}.message AS m
        WHERE m.endpoint = e.id AND m.until <= clock.now ORDER BY m.id LIMIT 1),
       clock.now - r.read_at,
       r.retention
FROM {schema}.endpoint AS e LEFT JOIN {schema}.reader AS r ON r.endpoint = e.id,
     (SELECT {schema}.clock_us() AS now) AS clock
