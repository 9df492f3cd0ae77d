-- Raises an endpoint's fence. KEYS: endpoint, [set of the topic's subscriptions].
-- ARGV: lock, fence, lock lease, [subscription].
-- Answers {'raised'}, {'outdated', fence in force} or {'other', lock, free in}.

local e = endpoint(KEYS[1])
local lock, fence = ARGV[1], ARGV[2]
local made = ensure(e, KEYS[2], ARGV[4])
local row = redis.call('HMGET', e.meta, 'lock', 'fence', 'until')
if row[2] then
  local is_same, free_in = row[1] == lock, tonumber(row[3]) - now
  if not is_same and free_in > 0 then return { 'other', row[1], free_in } end
  if less(fence, row[2]) or (not is_same and fence == row[2]) then return { 'outdated', row[2] } end
end
-- A full server is emptied by whoever holds the lock, which has to become known for that.
if not made then go_on_when_full(e.meta) end
redis.call('HSET', e.meta, 'lock', lock, 'fence', fence, 'until', now + tonumber(ARGV[3]))
-- What an earlier term has in flight is free at once.
for _, number in ipairs(redis.call('ZRANGEBYSCORE', e.lease, '(' .. name_of(now), '+inf')) do
  local claimed_under = read_state(redis.call('HGET', e.state, number)).fence
  if claimed_under ~= '' and less(claimed_under, fence) then redis.call('ZADD', e.lease, now, number) end
end
-- A former holder's consumer that waits for messages learns that its term is over.
tell(e)
return { 'raised' }
