-- Not after it has run out (?4: now), even if nobody has taken it: only a fresh acquisition has a new fence.
UPDATE bus_lock SET renewed_at = ?4, boot = ?5
WHERE id = ?1 AND owner = ?2 AND fence = ?3 AND ended IS NULL AND boot = ?5 AND renewed_at + lease > ?4
