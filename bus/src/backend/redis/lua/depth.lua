-- How much of an endpoint is where. KEYS: endpoint. Answers {ready, in flight, delayed, dead}.

local e = endpoint(KEYS[1])
local after_now = '(' .. name_of(now)
local due = redis.call('ZCOUNT', e.retry, '-inf', now) + redis.call('ZCOUNT', e.later, '-inf', now)
local lapsed, in_flight = redis.call('ZCOUNT', e.lease, '-inf', now), redis.call('ZCOUNT', e.lease, after_now, '+inf')
local holders = redis.call('ZRANGE', e.held, 0, -1, 'WITHSCORES')
for at = 1, #holders, 2 do
  local h = held_by(e, holders[at])
  local left = h and h.left or 0
  if tonumber(holders[at + 1]) > now then in_flight = in_flight + left else lapsed = lapsed + left end
end
return {
  redis.call('LLEN', e.ready) + redis.call('ZCARD', e.back) + due + lapsed,
  in_flight,
  redis.call('ZCOUNT', e.retry, after_now, '+inf') + redis.call('ZCOUNT', e.later, after_now, '+inf'),
  redis.call('ZCARD', e.dead),
}
