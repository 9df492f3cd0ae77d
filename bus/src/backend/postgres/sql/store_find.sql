SELECT id, version FROM {schema}.store
