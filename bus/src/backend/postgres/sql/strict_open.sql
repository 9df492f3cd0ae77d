INSERT INTO {schema}.strict (endpoint) VALUES ($1) ON CONFLICT (endpoint) DO NOTHING
