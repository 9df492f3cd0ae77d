-- What the scripts on messages begin with: the time, the keys of an endpoint, and what several of them do.
--
-- Times are microseconds of the server's clock. A message lies in one of these places:
--   ready  list    never claimed: the messages themselves, in order
--   back   sorted  claimed before and available again: numbers, in the order of their first claims
--   held   sorted  claimed for the first time: claims, by the end of their leases; see held.lua
--   lease  sorted  claimed otherwise: numbers, by the end of their leases
--   retry  sorted  waits for its next attempt: numbers, by due time
--   later  sorted  sent with a delay: numbers, by due time
--   dead   sorted  given up on: numbers of deaths; each is a hash of its own
-- Whatever has a number lies in the hash `body`. The hash `state` says what its claims have counted:
-- "claim deliveries failures crashes alone crashed-alone fence", the claim being empty while there is none. A message in
-- `held` has no state.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local PLACES = { 'meta', 'ready', 'back', 'held', 'claims', 'lease', 'retry', 'later', 'body', 'state', 'error', 'dead', 'buried' }

-- A message begins with its version, when it expires (16 digits), its time to live (8 bytes) and its id (16 bytes); see
-- body.rs.
local SHORTEST, NEVER, FOR_EVER = 55, '9999999999999999', string.rep('\255', 8)
-- Never, too: of what has been put back.
local KEPT = '9999999999999998'

local function endpoint(base)
  local e = { base = base }
  for _, place in ipairs(PLACES) do e[place] = base .. place end
  -- What was set aside when the endpoint was dropped; see aside.lua.
  e.aside = base .. 'aside'
  return e
end

-- Runs a command on a list of arguments, however long it is.
local function in_pieces(command, key, list)
  for first = 1, #list, 3000 do
    redis.call(command, key, unpack(list, first, math.min(first + 2999, #list)))
  end
end

-- Compares decimal numbers of any size.
local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

local function is_made(e)
  return redis.call('HEXISTS', e.meta, 'made') == 1
end

-- The set of all endpoints' names, and the endpoint's name in it: nothing but people's views reads it.
local function listing(e)
  local prefix, name, rest = string.match(e.base, '^(.-):{%a/(.-)}:(.*)$')
  local subscription = string.match(rest, '^s/(.*):$')
  return prefix .. ':endpoints', subscription and (name .. '/' .. subscription) or name
end

-- That an endpoint cannot be listed is no reason to call anything else a failure.
local function list(e)
  redis.pcall('SADD', listing(e))
end

-- Makes the endpoint where it is missing; true if it was. `topic` is the set of a topic's subscriptions.
local function ensure(e, topic, name)
  local known = is_made(e)
  if topic and redis.call('SISMEMBER', topic, name) == 0 then
    redis.call('SADD', topic, name)
    known = false
  end
  if not known then
    redis.call('HSET', e.meta, 'made', now)
    list(e)
  end
  return not known
end

-- Takes `count` numbers; answers the last of them. They begin at the clock, so that none comes again when the keys have
-- been deleted, and never exceed what a score holds exactly.
local function take_numbers(e, counter, count)
  if redis.call('HEXISTS', e.meta, counter) == 0 then redis.call('HSET', e.meta, counter, now) end
  return redis.call('HINCRBY', e.meta, counter, count)
end

-- A number as the member of a set.
local function name_of(number)
  return string.format('%.0f', number)
end

-- A full server (`maxmemory`) refuses a script whose first write may take memory, and lets one go on that has begun to
-- write. What only ends or prolongs something is not to be refused, so it begins with a write that changes nothing.
local function go_on_when_full(key)
  redis.call('HDEL', key, '')
end

-- Whether somebody who waits would have to be told when something is added.
local function is_empty(e)
  return redis.call('LLEN', e.ready) == 0 and redis.call('ZCARD', e.back) == 0
end

-- A hint. A user who may not give any has done what else the script did all the same: an error would say that nothing was.
local function tell(e)
  redis.pcall('PUBLISH', e.base .. 'wake', '')
end

local function read_state(text)
  local s = { claim = '', deliveries = 0, failures = 0, crashes = 0, alone = '0', crashed_alone = '0', fence = '' }
  if text then
    local claim, deliveries, failures, crashes, alone, crashed_alone, fence =
      string.match(text, '^(%d*) (%d+) (%d+) (%d+) ([01]) ([01]) (%d*)$')
    if claim then
      s.claim, s.alone, s.crashed_alone, s.fence = claim, alone, crashed_alone, fence
      s.deliveries, s.failures, s.crashes = tonumber(deliveries), tonumber(failures), tonumber(crashes)
    end
  end
  return s
end

local function write_state(s)
  return string.format('%s %d %d %d %s %s %s', s.claim, s.deliveries, s.failures, s.crashes, s.alone, s.crashed_alone, s.fence)
end

-- When a message expires; nil if it is no message of ours.
local function expiry_of(body)
  return #body >= SHORTEST and string.byte(body) == 1 and tonumber(string.sub(body, 2, 17)) or nil
end

-- Somebody else's bytes as the body of a message, so that they can be shown and put back.
local function wrap(bytes)
  local id = string.gsub(string.sub(redis.sha1hex(bytes), 1, 32), '..', function(hex) return string.char(tonumber(hex, 16)) end)
  return string.char(1) .. NEVER .. FOR_EVER .. id .. string.rep('\0', SHORTEST - 41) .. bytes
end

-- Adds a message to the dead letters. Its id is looked up when it is put back.
local function bury(e, body, deliveries, reason, cause)
  local death = name_of(take_numbers(e, 'deaths', 1))
  local letter = { 'body', body, 'deliveries', deliveries, 'reason', reason, 'since', now }
  if cause then
    letter[#letter + 1] = 'error'
    letter[#letter + 1] = cause
  end
  redis.call('HSET', e.dead .. ':' .. death, unpack(letter))
  redis.call('ZADD', e.dead, death, death)
  local id = string.sub(body, 26, 41)
  local deaths = redis.call('HGET', e.buried, id)
  redis.call('HSET', e.buried, id, deaths and (deaths .. ' ' .. death) or death)
end

-- Takes out what a message with a number has beside its place.
local function forget(e, number)
  redis.call('HDEL', e.body, number)
  redis.call('HDEL', e.state, number)
  redis.call('HDEL', e.error, number)
end

-- The fence in force, unless it is the one that is demanded.
local function other_fence(e, fence)
  local in_force = redis.call('HGET', e.meta, 'fence') or ''
  if in_force ~= fence then return in_force end
end

-- Keeps the fence row bound to its lock.
local function keep_bound(e, lock_lease)
  local bound = tonumber(redis.call('HGET', e.meta, 'until') or 0)
  if bound < now + lock_lease then redis.call('HSET', e.meta, 'until', now + lock_lease) end
end
