-- Available, in flight, delayed and dead messages of an endpoint.
SELECT (SELECT count(*) FROM {schema}.message AS m WHERE m.endpoint = e.id AND m.until <= clock.now)
         + (SELECT count(*) FROM {schema}.delayed AS d WHERE d.endpoint = e.id AND d.due <= clock.now),
       (SELECT count(*) FROM {schema}.message AS m WHERE m.endpoint = e.id AND m.until > clock.now),
       (SELECT count(*) FROM {schema}.delayed AS d WHERE d.endpoint = e.id AND d.due > clock.now),
       (SELECT count(*) FROM {schema}.dead AS d WHERE d.endpoint = e.id)
FROM {schema}.endpoint AS e, (SELECT {schema}.clock_us() AS now) AS clock WHERE e.name = $1
