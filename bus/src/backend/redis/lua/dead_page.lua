-- The numbers of a page of deaths, oldest first. A letter to begin after that is gone was put back with its page: then
-- the page begins anew. KEYS: endpoint. ARGV: id to begin after or '', limit.

local e = endpoint(KEYS[1])
local deaths = ARGV[1] ~= '' and redis.call('HGET', e.buried, ARGV[1])
local after = deaths and ('(' .. string.match(deaths, '%d+$')) or '-inf'
return redis.call('ZRANGEBYSCORE', e.dead, after, '+inf', 'LIMIT', 0, ARGV[2])
