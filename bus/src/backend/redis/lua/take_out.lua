-- Takes dead letters out, for good or to be delivered again: as they came, but without a time to live, which would have
-- them dead again at once; nor does a retention apply to them. KEYS: endpoint. ARGV: 'put back' or 'drop', ids.
-- Answers for each: 1, or 0 if it is no dead letter.

local e = endpoint(KEYS[1])
local was_empty, is_put_back, answers = is_empty(e), false, {}
for at = 2, #ARGV do
  local deaths = redis.call('HGET', e.buried, ARGV[at])
  for death in string.gmatch(deaths or '', '%d+') do
    local letter = e.dead .. ':' .. death
    local body = redis.call('HGET', letter, 'body')
    redis.call('DEL', letter)
    redis.call('ZREM', e.dead, death)
    if body and ARGV[1] == 'put back' then
      -- One by one: together they may be more than the server has room for beside what it stores.
      redis.call('RPUSH', e.ready, string.sub(body, 1, 1) .. KEPT .. FOR_EVER .. string.sub(body, 26))
      is_put_back = true
    end
  end
  redis.call('HDEL', e.buried, ARGV[at])
  answers[at - 1] = deaths and 1 or 0
end
if was_empty and is_put_back then tell(e) end
return answers
