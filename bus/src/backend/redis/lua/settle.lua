-- Ends claims. KEYS: endpoint, then targets and endpoints of guards.
-- ARGV: fence or '', strict; record, batch, how long it is kept (ms); how many former batches are asked for, and for each
-- record, batch; how many claims have messages that are completed, and for each: claim, count, numbers, which ascend;
-- then for each other settlement: number, claim, verdict, its two arguments, count of outgoing messages, and for each of
-- these: 'queue' or 'topic', key, when, time, key of the guard or 0, fence, body.
-- Verdicts: complete | retry (after, error) | dead (reason, error) | release | check: only whether the claim is ours.
-- Answers {'settled', {what was lost among the completed, counted from 1}, {for each other 1, 0 for a lost claim, or the
-- fence in force}, {for each former batch: what it had not ended, if it was done}} or {'fenced', fence in force}.
--
-- What a batch has not ended is kept for a while, "batch number:claim …", for those who never got its answer.

local e = endpoint(KEYS[1])
local fence, strict = ARGV[1], ARGV[2] == '1'
if fence ~= '' then
  local in_force = other_fence(e, fence)
  if in_force then return { 'fenced', in_force } end
end

local former, at = {}, 7
for number = 1, tonumber(ARGV[6]) do
  local batch, lost = string.match(redis.call('GET', e.base .. 'settled:' .. ARGV[at]) or '', '^(%d+)(.*)$')
  former[number] = batch == ARGV[at + 1] and lost
  at = at + 2
end

local done, not_done = {}, {}
local comes_back, is_sooner, was_empty = false, false, nil
local has_states = redis.call('EXISTS', e.state) == 1

local function lose(number, claim)
  not_done[#not_done + 1] = number .. ':' .. claim
end

-- Whether a state is that of a claim.
local function is_of(state, claim)
  return state and string.find(state, claim, 1, true) == 1 and string.byte(state, #claim + 1) == 32
end

-- Where the messages begin that a settlement sends.
local function outgoing_of(begin)
  local first, begins_of = begin + 6, {}
  for number = 1, tonumber(ARGV[begin + 5]) do begins_of[number] = first + 7 * (number - 1) end
  return begins_of
end

-- Whether what a settlement would send may be sent; if not, the fence in force.
local function outgoing_fails(begin)
  for _, first in ipairs(outgoing_of(begin)) do
    local in_force = guard_fails(tonumber(ARGV[first + 4]), ARGV[first + 5])
    if in_force then return in_force end
  end
end

local function send_outgoing(begin)
  for _, first in ipairs(outgoing_of(begin)) do
    store(ARGV[first], tonumber(ARGV[first + 1]), ARGV[first + 2], ARGV[first + 3], ARGV[first + 6])
  end
end

-- Lets a message come back, with what has been counted.
local function come_back(number, s, after)
  if was_empty == nil then was_empty = is_empty(e) end
  redis.call('ZREM', e.lease, number)
  if redis.call('HEXISTS', e.body, number) == 0 then return forget(e, number) end
  s.claim, s.fence, s.alone = '', '', '0'
  redis.call('HSET', e.state, number, write_state(s))
  if after > 0 then
    local first = redis.call('ZRANGE', e.retry, 0, 0, 'WITHSCORES')[2]
    is_sooner = is_sooner or not first or now + after < tonumber(first)
    redis.call('ZADD', e.retry, now + after, number)
  else
    redis.call('ZADD', e.back, number, number)
    comes_back = true
  end
end

local function retry(number, s, after, cause)
  s.failures = s.failures + 1
  if s.alone == '1' then s.crashes, s.crashed_alone = 0, '0' end
  go_on_when_full(e.meta)
  redis.call('HSET', e.error, number, cause)
  come_back(number, s, after)
end

local function dead_letter(number, s, reason, cause)
  redis.call('ZREM', e.lease, number)
  local body = redis.call('HGET', e.body, number)
  if cause == '' then cause = redis.call('HGET', e.error, number) or nil end
  if body then bury(e, body, s.deliveries, reason, cause) end
  forget(e, number)
end

local function release(number, s)
  s.deliveries = math.max(s.deliveries - 1, 0)
  come_back(number, s, 0)
end

-- What a claim's message has counted; nothing, if the claim is not ours. And whether it is held together with others.
local function state_of(number, claim)
  local state = has_states and redis.call('HGET', e.state, number)
  if state then return is_of(state, claim) and read_state(state), false end
  if holds(e, claim, number) and redis.call('HEXISTS', e.body, number) == 1 then return first_state(claim, ''), true end
end

local completed = {}
local function settle(begin)
  local number, claim, verdict, sends = ARGV[begin], ARGV[begin + 1], ARGV[begin + 2], ARGV[begin + 5] ~= '0'
  local s, is_held = nil, false
  if not done[number] then s, is_held = state_of(number, claim) end
  if not s then return 0 end
  local in_force = sends and outgoing_fails(begin)
  if in_force then return in_force end
  if verdict == 'check' then return 1 end
  done[number] = true
  if is_held then let_go(claim, 1) end
  if verdict == 'complete' then
    completed[#completed + 1] = number
  elseif verdict == 'retry' then
    retry(number, s, tonumber(ARGV[begin + 3]), ARGV[begin + 4])
  elseif verdict == 'dead' then
    dead_letter(number, s, ARGV[begin + 3], ARGV[begin + 4])
  else
    release(number, s)
  end
  if sends then send_outgoing(begin) end
  return 1
end

-- Completes messages of one claim, which stand among the arguments; adds the places of those that it had lost.
local lost, seen = {}, 0
local function complete(claim, first, count)
  local h, last = held_by(e, claim), first + count - 1
  local is_all = h and count == h.count and count == h.left
    and tonumber(ARGV[first]) == h.first and tonumber(ARGV[last]) == h.first + count - 1
  local is_deleted = false
  if is_all and not has_states then
    let_go(claim, count)
    if redis.call('HDEL', e.body, unpack(ARGV, first, last)) == count then
      seen = seen + count
      return
    end
    -- Somebody else has deleted some of them: nobody can tell any more which.
    is_deleted = true
  end
  local states = has_states and redis.call('HMGET', e.state, unpack(ARGV, first, last)) or {}
  for offset = 1, count do
    local number, is_ended = ARGV[first + offset - 1], false
    if states[offset] then
      is_ended = is_of(states[offset], claim)
      if is_ended then completed[#completed + 1] = number end
    elseif not is_deleted and holds(e, claim, number) then
      is_ended = redis.call('HDEL', e.body, number) == 1
      if is_ended then let_go(claim, 1) end
    end
    if is_ended then
      done[number] = true
    else
      lost[#lost + 1] = seen + offset
      lose(number, claim)
    end
  end
  seen = seen + count
end

local claims = tonumber(ARGV[at])
at = at + 1
for _ = 1, claims do
  local count = tonumber(ARGV[at + 1])
  complete(ARGV[at], at + 2, count)
  at = at + 2 + count
end
local answers = {}
while at <= #ARGV do
  local answer = settle(at)
  -- What was only asked for has not been ended.
  if answer ~= 1 or ARGV[at + 2] == 'check' then lose(ARGV[at], ARGV[at + 1]) end
  answers[#answers + 1] = answer
  at = at + 6 + 7 * tonumber(ARGV[at + 5])
end
keep_held(e)
if #completed > 0 then
  in_pieces('ZREM', e.lease, completed)
  in_pieces('HDEL', e.body, completed)
  in_pieces('HDEL', e.state, completed)
  in_pieces('HDEL', e.error, completed)
end
flush()
if is_sooner or (comes_back and was_empty) or strict then tell(e) end
go_on_when_full(e.meta)
local kept = ARGV[4] .. (#not_done > 0 and ' ' .. table.concat(not_done, ' ') or '')
redis.call('SET', e.base .. 'settled:' .. ARGV[3], kept, 'PX', ARGV[5])
return { 'settled', lost, answers, former }
