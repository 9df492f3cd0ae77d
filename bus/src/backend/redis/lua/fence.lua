-- An endpoint's fence row. KEYS: endpoint. Answers {lock, fence, bound for}, or nothing.

local row = redis.call('HMGET', endpoint(KEYS[1]).meta, 'lock', 'fence', 'until')
if not row[2] then return {} end
return { row[1], row[2], math.max(tonumber(row[3]) - now, 0) }
