-- What the scripts on locks begin with: the time, in microseconds of the server's clock, and how fences are compared.
-- A record is a hash: owner, fence, lease, renewed (when), beat (grows with each renewal), ended ('clean' or 'cut'),
-- reason, note. It is never deleted, since its fence has to outlive every term.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local record = KEYS[1]

-- Takes note of the lock in the set of all locks' ids, which nothing but people's views reads: that it cannot be listed is
-- no reason not to have it.
local function list()
  local prefix, id = string.match(record, '^(.-):{lock/(.*)}$')
  redis.pcall('SADD', prefix .. ':locks', id)
end

-- Compares decimal numbers of any size.
local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

-- A full server (`maxmemory`) refuses a script whose first write may take memory, and lets one go on that has begun to
-- write. Locks that are held, and their hand-over, need no memory.
local function go_on_when_full()
  redis.call('HDEL', record, '')
end
