-- Keeps everybody else from attending to the subscription $1, and from dropping it, until the transaction ends.
SELECT 1 FROM {schema}.endpoint WHERE name = $1 AND topic IS NOT NULL FOR UPDATE
