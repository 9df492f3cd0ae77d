-- Puts dead letters back as they came, with their counts at zero and without their time to live: else an expired one
-- would be dead again at once. Nor does a retention apply to them, as `until` says. Answers the ids of those that were
-- there.
WITH risen AS (
    DELETE FROM {schema}.dead AS d USING {schema}.endpoint AS e
    WHERE e.name = $1 AND d.endpoint = e.id AND d.uuid = ANY ($2)
    RETURNING d.*
)
INSERT INTO {schema}.message (endpoint, until, uuid, type, headers, sent_at, body)
SELECT endpoint, 1, uuid, type, headers, sent_at, body FROM (SELECT * FROM risen ORDER BY death) AS in_order
RETURNING uuid
