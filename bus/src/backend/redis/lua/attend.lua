-- A host has a processor of an endpoint, now; where somebody has lost the list of all endpoints, it is in there again. KEYS: endpoint. ARGV: retention or ''.

local e = endpoint(KEYS[1])
if not is_made(e) then return 0 end
redis.call('HSET', e.meta, 'read', now, 'retention', ARGV[1])
list(e)
return 1
