SELECT id FROM {schema}.endpoint WHERE name = $1
