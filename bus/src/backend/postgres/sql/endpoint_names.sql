SELECT name FROM {schema}.endpoint
