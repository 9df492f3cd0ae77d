-- All messages in the ready table, claims in force (those of other boots until somebody takes them over), delayed ones not
-- yet due and those that are, dead ones.
SELECT
    (SELECT count(*) FROM bus_message WHERE id > ?1 AND id <= ?2),
    (SELECT count(*) FROM bus_claim WHERE id > ?1 AND id <= ?2 AND (boot <> ?3 OR until > ?4)),
    (SELECT count(*) FROM bus_delayed WHERE endpoint = ?5 AND due > ?6),
    (SELECT count(*) FROM bus_delayed WHERE endpoint = ?5 AND due <= ?6),
    (SELECT count(*) FROM bus_dead WHERE endpoint = ?5)
