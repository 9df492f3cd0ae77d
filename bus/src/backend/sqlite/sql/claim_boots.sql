-- By which other clocks than ours (?3) claims of one endpoint are reckoned.
SELECT DISTINCT boot FROM bus_claim WHERE id > ?1 AND id <= ?2 AND boot <> ?3
