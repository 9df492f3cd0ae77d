-- A host has a processor of an endpoint, now. KEYS: endpoint. ARGV: retention or ''.

local e = endpoint(KEYS[1])
if redis.call('HEXISTS', e.meta, 'made') == 0 then return 0 end
redis.call('HSET', e.meta, 'read', now, 'retention', ARGV[1])
return 1
