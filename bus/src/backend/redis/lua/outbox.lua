-- Storing messages. A target is a queue or a topic, whose message goes into each of its subscriptions.

local opened = {}

-- The endpoints of a target: KEYS[key] is a queue's own prefix, or the set of a topic's subscriptions.
local function readers(kind, key)
  if opened[key] then return opened[key] end
  local found = {}
  if kind == 'queue' then
    local e = endpoint(KEYS[key])
    ensure(e)
    found[1] = e
  else
    local names = redis.call('SMEMBERS', KEYS[key])
    table.sort(names)
    for at, name in ipairs(names) do
      found[at] = endpoint(string.gsub(KEYS[key], 'subscriptions$', 's/' .. name .. ':'))
      found[at].name = name
    end
  end
  for _, e in ipairs(found) do
    e.was_empty, e.pending = is_empty(e), {}
    e.earliest = tonumber(redis.call('ZRANGE', e.later, 0, 0, 'WITHSCORES')[2])
  end
  opened[key] = found
  return found
end

-- The fence in force, unless it is the one that a message is sent under. No guard is key 0.
local function guard_fails(key, fence)
  return key > 0 and other_fence(endpoint(KEYS[key]), fence)
end

-- When a message becomes available, unless that is now.
local function due_time(when, time)
  local due = when == 'in' and now + tonumber(time) or when == 'at' and tonumber(time) or now
  if due > now then return due end
end

-- Stores a message; answers where it waits, if it does: "number" or "subscription=number …".
local function store(kind, key, when, time, body)
  local due, places = due_time(when, time), {}
  for at, e in ipairs(readers(kind, key)) do
    if due then
      local number = name_of(take_numbers(e, 'number', 1))
      redis.call('HSET', e.body, number, body)
      redis.call('ZADD', e.later, due, number)
      e.is_sooner = e.is_sooner or not e.earliest or due < e.earliest
      places[at] = e.name and (e.name .. '=' .. number) or number
    else
      e.pending[#e.pending + 1] = body
    end
  end
  return table.concat(places, ' ')
end

-- Writes what has been stored for at once, and tells those who wait.
local function flush()
  for _, found in pairs(opened) do
    for _, e in ipairs(found) do
      in_pieces('RPUSH', e.ready, e.pending)
      if e.is_sooner or (e.was_empty and #e.pending > 0) then tell(e) end
    end
  end
end
