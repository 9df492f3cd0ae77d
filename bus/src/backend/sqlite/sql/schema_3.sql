-- Version 3. What each boot's clock has shown at the latest, as told by those who read it: once a second, with what they
-- write. NULL: only older versions have written, which have ended since.
ALTER TABLE bus_boot ADD COLUMN seen INTEGER;
-- Messages that were put back or given back, to which no retention applies any more. NULL for all others.
ALTER TABLE bus_message ADD COLUMN kept INTEGER;
