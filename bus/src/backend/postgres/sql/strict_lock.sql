-- One claim at a time. The next statement sees what the one before has committed.
SELECT 1 FROM {schema}.strict WHERE endpoint = $1 FOR UPDATE
