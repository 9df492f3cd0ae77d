-- Records that the run of a claim is made alone. KEYS: endpoint. ARGV: fence or '', number, claim.
-- Answers {'recorded', 1 or 0} or {'fenced', fence in force}.

local e = endpoint(KEYS[1])
if ARGV[1] ~= '' then
  local in_force = other_fence(e, ARGV[1])
  if in_force then return { 'fenced', in_force } end
end
go_on_when_full(e.meta)
local number, claim = ARGV[2], ARGV[3]
local state = redis.call('HGET', e.state, number)
if not state and holds(e, claim, number) then
  spread(e, claim)
  state = redis.call('HGET', e.state, number)
end
local s = read_state(state)
if s.claim ~= claim then return { 'recorded', 0 } end
s.alone = '1'
redis.call('HSET', e.state, number, write_state(s))
return { 'recorded', 1 }
