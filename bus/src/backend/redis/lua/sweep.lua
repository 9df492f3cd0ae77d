-- Drops what is older than the endpoint's retention and has never been claimed nor put back, from the front on; and what is
-- left of a drop that somebody died over. KEYS: endpoint. ARGV: how many are looked at, at most. Answers how many of the
-- former were dropped.

local e = endpoint(KEYS[1])
clear(e, tonumber(ARGV[1]))
local retention = tonumber(redis.call('HGET', e.meta, 'retention') or '')
local swept, kept = 0, 0
while retention and swept + kept < tonumber(ARGV[1]) do
  local next = redis.call('LINDEX', e.ready, kept)
  local sent = next and sent_at(next)
  if not sent or sent >= now - retention then break end
  if string.sub(next, 2, 17) == KEPT then
    kept = kept + 1
  else
    -- From the front: what is kept comes before it and is something else.
    redis.call('LREM', e.ready, 1, next)
    swept = swept + 1
  end
end
return swept
