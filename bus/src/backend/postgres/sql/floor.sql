-- Where the first message of the endpoint $1 lies, beyond $2 and not beyond $3.
SELECT min(id) FROM {schema}.message WHERE endpoint = $1 AND id > $2 AND id <= $3
