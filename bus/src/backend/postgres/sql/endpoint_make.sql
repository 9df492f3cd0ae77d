INSERT INTO {schema}.endpoint (name, topic) SELECT * FROM unnest($1, $2) ON CONFLICT (name) DO NOTHING
