-- Messages that were claimed for the first time have nothing counted yet. A consumer without a fence holds them by their
-- claim, all together: the hash `claims` says "first count left", their numbers following each other from the first, and
-- the sorted set `held` when the claim ends. One that meets another fate than being completed leaves its claim, and has a
-- state from then on.

local held = {}

-- A claim with what it holds; false if there is none of that name.
local function held_by(e, claim)
  if held[claim] == nil then
    local first, count, left = string.match(redis.call('HGET', e.claims, claim) or '', '^(%d+) (%d+) (%d+)$')
    held[claim] = first and { first = tonumber(first), count = tonumber(count), left = tonumber(left) } or false
  end
  return held[claim]
end

-- Whether a message without a state is held by that claim.
local function holds(e, claim, number)
  local h, number = held_by(e, claim), tonumber(number)
  return h and number >= h.first and number < h.first + h.count
end

-- Takes note that a message is held no more. `keep_held` writes it down.
local function let_go(claim, count)
  held[claim].left, held[claim].is_changed = held[claim].left - count, true
end

local function keep_held(e)
  for claim, h in pairs(held) do
    if h and h.is_changed and h.left > 0 then
      redis.call('HSET', e.claims, claim, string.format('%.0f %d %d', h.first, h.count, h.left))
    elseif h and h.is_changed then
      redis.call('HDEL', e.claims, claim)
      redis.call('ZREM', e.held, claim)
    end
  end
end

local function first_state(claim, fence)
  return { claim = claim, deliveries = 1, failures = 0, crashes = 0, alone = '0', crashed_alone = '0', fence = fence }
end

-- The numbers that a claim holds.
local function numbers_of(e, claim)
  local h, numbers = held_by(e, claim), {}
  for number = h and h.first or 1, h and h.first + h.count - 1 or 0 do
    local name = name_of(number)
    if redis.call('HEXISTS', e.body, name) == 1 and redis.call('HEXISTS', e.state, name) == 0 then
      numbers[#numbers + 1] = name
    end
  end
  return numbers
end

-- Has all that a claim holds leave it, for places of their own.
local function spread(e, claim)
  local ends, states, leases = redis.call('ZSCORE', e.held, claim) or 0, {}, {}
  local state = write_state(first_state(claim, ''))
  for at, number in ipairs(numbers_of(e, claim)) do
    states[2 * at - 1], states[2 * at] = number, state
    leases[2 * at - 1], leases[2 * at] = ends, number
  end
  redis.call('ZREM', e.held, claim)
  redis.call('HDEL', e.claims, claim)
  in_pieces('HSET', e.state, states)
  in_pieces('ZADD', e.lease, leases)
  held[claim] = false
end
