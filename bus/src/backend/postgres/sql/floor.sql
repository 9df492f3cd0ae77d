-- Where the first message of the endpoint $1 lies, beyond $2 and not beyond $3; and how long the server took to find it.
WITH first AS MATERIALIZED (
    SELECT min(id) AS id FROM {schema}.message WHERE endpoint = $1 AND id > $2 AND id <= $3
)
SELECT id, (extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint FROM first
