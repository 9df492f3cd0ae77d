-- Puts dead letters back as they came, with their counts at zero and without their time to live: else an expired one
-- would be dead again at once. Nor does a retention apply to them, as `until` says. Answers the ids of those that were
-- there. Their headers, which are JSON without spaces, say that they were put back.
WITH risen AS (
    DELETE FROM {schema}.dead AS d USING {schema}.endpoint AS e
    WHERE e.name = $1 AND d.endpoint = e.id AND d.uuid = ANY ($2)
    RETURNING d.*
)
INSERT INTO {schema}.message (endpoint, until, uuid, type, headers, sent_at, body)
SELECT endpoint, 1, uuid, type,
    CASE
        WHEN headers IS NULL OR headers = '{}' THEN '{"bus-put-back":"1"}'
        WHEN position('"bus-put-back":' IN headers) > 0 THEN headers
        ELSE '{"bus-put-back":"1",' || substr(headers, 2)
    END,
    sent_at, body
FROM (SELECT * FROM risen ORDER BY death) AS in_order
RETURNING uuid
