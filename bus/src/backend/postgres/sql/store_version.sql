INSERT INTO {schema}.store AS s (version) VALUES ({version})
ON CONFLICT (one) DO UPDATE SET version = excluded.version WHERE s.version < excluded.version;
