-- What is known about the reading of an endpoint. KEYS: endpoint. Answers {how long ago its first available message was
-- sent, how long ago a host attended to it, its retention}, each -1 where there is none; nothing, if it is not there.

local e = endpoint(KEYS[1])
if not is_made(e) then return {} end
local back = redis.call('ZRANGE', e.back, 0, 0)[1]
local first = back and redis.call('HGET', e.body, back) or redis.call('LINDEX', e.ready, 0)
local sent = first and sent_at(first)
local read = tonumber(redis.call('HGET', e.meta, 'read') or '')
local retention = tonumber(redis.call('HGET', e.meta, 'retention') or '')
return { sent and math.max(now - sent, 0) or (first and 0 or -1), read and math.max(now - read, 0) or -1, retention or -1 }
