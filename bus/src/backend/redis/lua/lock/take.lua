-- Takes a lock, or extends it for the owner who has it already. KEYS: record.
-- ARGV: owner, lease, and what the candidate has seen by itself: fence and beat, or '', and how long its own clock still
-- has the holder's lease last.
-- Answers {'taken', fence} or {'held', fence, beat, age, lease}.

local owner, lease, seen_fence, seen_beat, wait = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])
local row = redis.call('HMGET', record, 'owner', 'fence', 'lease', 'renewed', 'beat', 'ended')
local holder, fence, ended = row[1], row[2], row[6]
local holders_lease, renewed, beat = tonumber(row[3] or 0), tonumber(row[4] or 0), row[5] or '0'

-- By the server's clock, unless what the candidate has seen by its own tells otherwise: the server's may have jumped.
local function is_held()
  if not holder or ended == 'clean' then return false end
  local is_seen = seen_fence ~= ''
  local is_same = seen_fence == fence and seen_beat == beat
  if is_seen and is_same then return wait > 0 end
  return is_seen or renewed + holders_lease > now
end

go_on_when_full()
if is_held() then
  if holder ~= owner or ended then return { 'held', fence, beat, now - renewed, holders_lease } end
else
  local clock = string.format('%.0f', now)
  if fence and not less(fence, clock) then
    redis.call('HINCRBY', record, 'fence', 1)
  else
    redis.call('HSET', record, 'fence', clock)
  end
end
redis.call('HSET', record, 'owner', owner, 'lease', lease, 'renewed', now)
redis.call('HINCRBY', record, 'beat', 1)
redis.call('HDEL', record, 'ended', 'reason')
list()
return { 'taken', redis.call('HGET', record, 'fence') }
