-- Drops dead letters for good. Answers the ids of those that were there.
DELETE FROM {schema}.dead AS d USING {schema}.endpoint AS e
WHERE e.name = $1 AND d.endpoint = e.id AND d.uuid = ANY ($2)
RETURNING d.uuid
