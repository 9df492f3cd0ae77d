-- Deletes a part of what was set aside of a dropped subscription. KEYS: endpoint. ARGV: how many dead letters, at most.
-- Answers 1 if nothing is left, else 0.

return clear(endpoint(KEYS[1]), tonumber(ARGV[1])) and 1 or 0
