-- Takes back all copies of a delayed message, or none: some may have become available already.
-- KEYS: endpoints of one tag, [endpoint of the guard]. ARGV: fence or '', the message's id (16 bytes), its number in each
-- endpoint. A number alone may be another message's: a server that has lost its last writes gives numbers once more.
-- Answers {'cancelled', 1 or 0} or {'fenced', fence in force}.

local fence, id, numbers = ARGV[1], ARGV[2], #ARGV - 2
if fence ~= '' then
  local in_force = other_fence(endpoint(KEYS[#KEYS]), fence)
  if in_force then return { 'fenced', in_force } end
end
for at = 1, numbers do
  local due = tonumber(redis.call('ZSCORE', endpoint(KEYS[at]).later, ARGV[at + 2]) or 0)
  local body = redis.call('HGET', endpoint(KEYS[at]).body, ARGV[at + 2]) or ''
  if due <= now or string.sub(body, 26, 41) ~= id then return { 'cancelled', 0 } end
end
for at = 1, numbers do
  redis.call('ZREM', endpoint(KEYS[at]).later, ARGV[at + 2])
  redis.call('HDEL', endpoint(KEYS[at]).body, ARGV[at + 2])
end
return { 'cancelled', 1 }
