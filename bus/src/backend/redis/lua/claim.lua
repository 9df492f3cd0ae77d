-- Claims messages. KEYS: endpoint, [set of the topic's subscriptions].
-- ARGV: claim, max, lease, fence or '', lock lease, strict, again, most bytes, [subscription].
-- Answers {'claimed', made, next change or -1, {number, counts, body, …}, first number, {body, …}} or
-- {'fenced', fence in force}. The last two are what was never claimed before, numbered from the first on.

local DUE_AT_ONCE, BURIED_AT_ONCE, POPPED_AT_ONCE = 512, 512, 256

local e = endpoint(KEYS[1])
local claim, max, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local fence, strict, again, most_bytes = ARGV[4], ARGV[6] == '1', ARGV[7] == '1', tonumber(ARGV[8])

if fence ~= '' then
  local in_force = other_fence(e, fence)
  if in_force then return { 'fenced', in_force } end
end

local lease_end = name_of(now + lease)
local answer, states, leases, new = {}, {}, {}, {}
local taken, bytes, buried = 0, 0, 0

local function is_full()
  return taken >= max or buried >= BURIED_AT_ONCE or (taken > 0 and bytes >= most_bytes)
end

local function hand_out(number, s, body)
  answer[#answer + 1] = number
  answer[#answer + 1] = string.format('%d %d %d %s', s.deliveries, s.failures, s.crashes, s.crashed_alone)
  answer[#answer + 1] = body
  leases[#leases + 1] = lease_end
  leases[#leases + 1] = number
  taken, bytes = taken + 1, bytes + #body
end

-- Claims a message that has a number already. It has been taken out of its place.
local function reclaim(number, s)
  local body = redis.call('HGET', e.body, number)
  if not body then
    forget(e, number)
  elseif expiry_of(body) <= now then
    bury(e, body, s.deliveries, 'expired', redis.call('HGET', e.error, number) or nil)
    forget(e, number)
    buried = buried + 1
  else
    s.deliveries, s.claim, s.fence = s.deliveries + 1, claim, fence
    states[#states + 1] = number
    states[#states + 1] = write_state(s)
    hand_out(number, s, body)
  end
end

-- What this very claim had got, when its answer was lost.
local function take_own()
  if held_by(e, claim) then spread(e, claim) end
  for _, number in ipairs(redis.call('ZRANGE', e.lease, 0, -1)) do
    local s = read_state(redis.call('HGET', e.state, number))
    local body = s.claim == claim and redis.call('HGET', e.body, number)
    if body then
      -- Its lease may have ended while the answer was on its way: it begins anew, and is nobody else's to take below.
      redis.call('ZADD', e.lease, lease_end, number)
      hand_out(number, s, body)
    end
  end
end

local function take_lapsed()
  while not is_full() do
    local number = redis.call('ZRANGEBYSCORE', e.lease, '-inf', now, 'LIMIT', 0, 1)[1]
    local lapsed = not number and redis.call('ZRANGEBYSCORE', e.held, '-inf', now, 'LIMIT', 0, 1)[1]
    if number then
      redis.call('ZREM', e.lease, number)
      local s = read_state(redis.call('HGET', e.state, number))
      s.crashes = s.crashes + 1
      if s.alone == '1' then s.alone, s.crashed_alone = '0', '1' end
      reclaim(number, s)
    elseif lapsed then
      spread(e, lapsed)
    else
      return
    end
  end
end

local function take_back()
  while not is_full() do
    local number = redis.call('ZPOPMIN', e.back)[1]
    if not number then return end
    reclaim(number, read_state(redis.call('HGET', e.state, number)))
  end
end

-- How many to take out of the list at once: not more than may be handed out, as far as their size can be told.
local function how_many()
  local average = taken > 0 and math.max(bytes / taken, 1) or most_bytes
  local fitting = math.max(math.floor((most_bytes - bytes) / average), 1)
  return math.min(max - taken, fitting, POPPED_AT_ONCE)
end

local function take_new()
  while not is_full() do
    local popped = redis.call('LPOP', e.ready, how_many())
    if not popped then return end
    for at, body in ipairs(popped) do
      local expiry = expiry_of(body)
      if is_full() then
        for rest = #popped, at, -1 do redis.call('LPUSH', e.ready, popped[rest]) end
        return
      elseif not expiry then
        bury(e, wrap(body), 0, 'unreadable', nil)
        buried = buried + 1
      elseif expiry <= now then
        bury(e, body, 0, 'expired', nil)
        buried = buried + 1
      else
        new[#new + 1] = body
        taken, bytes = taken + 1, bytes + #body
      end
    end
  end
end

-- Gives what was never claimed before its numbers and its place; answers the first number.
local function place_new()
  local first = take_numbers(e, 'number', #new) - #new + 1
  local bodies, first_text = {}, write_state(first_state(claim, fence))
  for at, body in ipairs(new) do
    local number = name_of(first + at - 1)
    bodies[2 * at - 1], bodies[2 * at] = number, body
    -- Under a fence each has a state of its own: whoever raises the fence sets it free.
    if fence ~= '' then
      states[#states + 1] = number
      states[#states + 1] = first_text
      leases[#leases + 1] = lease_end
      leases[#leases + 1] = number
    end
  end
  in_pieces('HSET', e.body, bodies)
  if fence == '' then
    -- A claim that was asked for twice, the first question arriving after the second: it keeps what it has.
    if held_by(e, claim) then spread(e, claim) end
    redis.call('HSET', e.claims, claim, string.format('%.0f %d %d', first, #new, #new))
    redis.call('ZADD', e.held, lease_end, claim)
  end
  return name_of(first)
end

-- Makes available what is due: a retry in its own place, anything else behind what is there already.
local function wake_due()
  for _, number in ipairs(redis.call('ZRANGEBYSCORE', e.retry, '-inf', now, 'LIMIT', 0, DUE_AT_ONCE)) do
    redis.call('ZREM', e.retry, number)
    redis.call('ZADD', e.back, number, number)
  end
  for _, number in ipairs(redis.call('ZRANGEBYSCORE', e.later, '-inf', now, 'LIMIT', 0, DUE_AT_ONCE)) do
    redis.call('ZREM', e.later, number)
    local body = redis.call('HGET', e.body, number)
    redis.call('HDEL', e.body, number)
    if body then redis.call('RPUSH', e.ready, body) end
  end
end

-- How many messages lie in a place.
local function placed()
  local count = redis.call('ZCARD', e.back) + redis.call('ZCARD', e.lease) + redis.call('ZCARD', e.retry) + redis.call('ZCARD', e.later)
  for _, holder in ipairs(redis.call('ZRANGE', e.held, 0, -1)) do
    local h = held_by(e, holder)
    count = count + (h and h.left or 0)
  end
  return count
end

-- Finds messages that have a number and lie in no place: somebody has deleted one of the keys. What had been claimed
-- comes back as a lapsed claim, anything else as available. True if there were any.
local function rescue()
  local bodies = redis.call('HLEN', e.body)
  if bodies == 0 or bodies <= placed() then return false end
  for _, holder in ipairs(redis.call('HKEYS', e.claims)) do
    if not redis.call('ZSCORE', e.held, holder) then redis.call('ZADD', e.held, 0, holder) end
    spread(e, holder)
  end
  for _, number in ipairs(redis.call('HKEYS', e.body)) do
    local is_placed = false
    for _, place in ipairs({ e.back, e.lease, e.retry, e.later }) do
      is_placed = is_placed or redis.call('ZSCORE', place, number)
    end
    if not is_placed then
      local s = read_state(redis.call('HGET', e.state, number))
      if s.claim == '' then
        redis.call('ZADD', e.back, number, number)
      else
        redis.call('ZADD', e.lease, 0, number)
      end
    end
  end
  return true
end

-- In strict order nothing passes what is in flight or waits for its retry.
local function is_held_back()
  local is_next_known = redis.call('ZCARD', e.back) > 0
  for _, place in ipairs({ e.lease, e.held }) do
    if redis.call('ZCOUNT', place, '(' .. name_of(now), '+inf') > 0 then return true end
    is_next_known = is_next_known or redis.call('ZCARD', place) > 0
  end
  return not is_next_known and redis.call('ZCARD', e.retry) > 0
end

local function take_all()
  if again then take_own() end
  if strict and (taken > 0 or is_held_back()) then return end
  if strict then max = 1 end
  take_lapsed()
  take_back()
  take_new()
end

go_on_when_full(e.meta)
wake_due()
take_all()
if taken == 0 and buried == 0 and rescue() then take_all() end
local first = #new > 0 and place_new() or 0
in_pieces('HSET', e.state, states)
in_pieces('ZADD', e.lease, leases)
local made = ensure(e, KEYS[2], ARGV[9]) and 1 or 0
if fence ~= '' then keep_bound(e, tonumber(ARGV[5])) end

local next_change = -1
if buried > 0 then
  next_change = 0
elseif taken == 0 then
  for _, place in ipairs({ e.lease, e.held, e.retry, e.later }) do
    local first = redis.call('ZRANGE', place, 0, 0, 'WITHSCORES')[2]
    if first and (next_change < 0 or first - now < next_change) then next_change = math.max(first - now, 0) end
  end
end
return { 'claimed', made, next_change, answer, first, new }
