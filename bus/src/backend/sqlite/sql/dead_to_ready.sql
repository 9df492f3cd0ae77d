-- As it came, with its counts at zero, and without its time to live: else an expired one would be dead again at once. Nor
-- does a retention apply to it.
INSERT INTO bus_message (id, uuid, type, headers, sent_at, kept, body)
SELECT ?2, uuid, type, headers, sent_at, 1, body FROM bus_dead WHERE death = ?1
