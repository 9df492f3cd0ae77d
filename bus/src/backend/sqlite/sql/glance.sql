-- Whether a claim would find anything, and when the next thing changes by itself. Reads only. Of claims it says whether any
-- has run out by our clock (?3, which shows ?4), is of an earlier term (?5), or is to be judged by another clock.
SELECT
    EXISTS (SELECT 1 FROM bus_message AS m
            WHERE m.id > ?1 AND m.id <= ?2
              AND NOT EXISTS (SELECT 1 FROM bus_claim AS c WHERE c.id = m.id)),
    EXISTS (SELECT 1 FROM bus_claim AS c
            WHERE c.id > ?1 AND c.id <= ?2 AND (c.boot <> ?3 OR c.until <= ?4 OR c.fence < ?5)),
    (SELECT min(c.until) FROM bus_claim AS c WHERE c.id > ?1 AND c.id <= ?2),
    (SELECT min(d.due) FROM bus_delayed AS d WHERE d.endpoint = ?6)
