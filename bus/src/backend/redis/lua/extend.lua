-- Makes claims last. KEYS: endpoint. ARGV: fence or '', lock lease, lease, then for each claim: number, claim.
-- Answers {'extended', {1 or 0}} or {'fenced', fence in force}.

local e = endpoint(KEYS[1])
if ARGV[1] ~= '' then
  local in_force = other_fence(e, ARGV[1])
  if in_force then return { 'fenced', in_force } end
end
go_on_when_full(e.meta)

local lease_end = name_of(now + tonumber(ARGV[3]))
local answers, leases, together = {}, {}, {}
for at = 4, #ARGV, 2 do
  local number, claim = ARGV[at], ARGV[at + 1]
  local state, is_ours = redis.call('HGET', e.state, number), false
  if state then
    is_ours = string.find(state, claim .. ' ', 1, true) == 1
    if is_ours then
      leases[#leases + 1] = lease_end
      leases[#leases + 1] = number
    end
  elseif holds(e, claim, number) and redis.call('HEXISTS', e.body, number) == 1 then
    is_ours = true
    together[claim] = together[claim] or {}
    together[claim][number] = true
  end
  answers[#answers + 1] = is_ours and 1 or 0
end
for claim, numbers in pairs(together) do
  local count = 0
  for _ in pairs(numbers) do count = count + 1 end
  if count >= held_by(e, claim).left then
    redis.call('ZADD', e.held, lease_end, claim)
  else
    -- Some of them are not to last.
    spread(e, claim)
    for number in pairs(numbers) do
      leases[#leases + 1] = lease_end
      leases[#leases + 1] = number
    end
  end
end
in_pieces('ZADD', e.lease, leases)
if ARGV[1] ~= '' then keep_bound(e, tonumber(ARGV[2])) end
return { 'extended', answers }
