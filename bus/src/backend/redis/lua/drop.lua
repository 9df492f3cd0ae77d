-- Drops a subscription with all that is in it. KEYS: endpoint, set of the topic's subscriptions. ARGV: how long nobody may
-- have attended to it, how many dead letters to drop at most, subscription. Answers {'none'}, {'read', how long ago},
-- {'more'} or {'done'}.

local e = endpoint(KEYS[1])
if redis.call('HEXISTS', e.meta, 'made') == 0 then return { 'none' } end
local read = tonumber(redis.call('HGET', e.meta, 'read') or '')
if read and now - read < tonumber(ARGV[1]) then return { 'read', math.max(now - read, 0) } end
-- Nothing that is published from now on reaches it.
redis.call('SREM', KEYS[2], ARGV[3])
local deaths = redis.call('ZRANGE', e.dead, 0, ARGV[2] - 1)
for _, death in ipairs(deaths) do redis.call('DEL', e.dead .. ':' .. death) end
if #deaths == tonumber(ARGV[2]) then
  redis.call('ZREM', e.dead, unpack(deaths))
  return { 'more' }
end
for _, place in ipairs(PLACES) do redis.call('UNLINK', e[place]) end
return { 'done' }
