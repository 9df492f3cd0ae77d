-- As it came, with its counts at zero, and without its time to live: else an expired one would be dead again at once. Nor
-- does a retention apply to it. Its headers, which are JSON without spaces, say that it was put back.
INSERT INTO bus_message (id, uuid, type, headers, sent_at, kept, body)
SELECT ?2, uuid, type,
    CASE
        WHEN headers IS NULL THEN '{"bus-put-back":"1"}'
        WHEN instr(headers, '"bus-put-back":') > 0 THEN headers
        ELSE '{"bus-put-back":"1",' || substr(headers, 2)
    END,
    sent_at, 1, body
FROM bus_dead WHERE death = ?1
