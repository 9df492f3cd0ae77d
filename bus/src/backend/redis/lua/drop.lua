-- Drops a subscription with all that is in it, unless somebody reads it: decided once, and done whole, so that whoever comes
-- next finds it as it was or not at all. KEYS: endpoint, set of the topic's subscriptions. ARGV: how long nobody may have
-- attended to it, subscription. Answers {'none'}, {'read', how long ago} or {'done'}; then clear.lua is called.

local e = endpoint(KEYS[1])
if not is_made(e) then return { redis.call('EXISTS', e.aside) == 1 and 'done' or 'none' } end
local read = tonumber(redis.call('HGET', e.meta, 'read') or '')
if read and now - read < tonumber(ARGV[1]) then return { 'read', math.max(now - read, 0) } end
-- Nothing that is published from now on reaches it.
redis.call('SREM', KEYS[2], ARGV[2])
set_aside(e)
for _, place in ipairs(PLACES) do redis.call('UNLINK', e[place]) end
return { 'done' }
