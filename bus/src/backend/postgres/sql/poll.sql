-- Which of the endpoints $1, each waited for beyond its watermark in $2, have something to be claimed.
SELECT w.endpoint FROM unnest($1, $2) AS w(endpoint, after), (SELECT {schema}.clock_us() AS now) AS clock
WHERE EXISTS (SELECT 1 FROM {schema}.message AS m
              WHERE m.endpoint = w.endpoint AND m.id > w.after AND m.until <= clock.now)
   OR EXISTS (SELECT 1 FROM {schema}.delayed AS d WHERE d.endpoint = w.endpoint AND d.due <= clock.now)
   OR NOT EXISTS (SELECT 1 FROM {schema}.endpoint AS e WHERE e.id = w.endpoint)
