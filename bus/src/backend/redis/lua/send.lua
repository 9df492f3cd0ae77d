-- Stores messages for one target. KEYS: queue or topic, endpoints of guards.
-- ARGV: 'queue' or 'topic', then for each message: when, time, key of the guard or 0, fence, body.
-- Answers {keys of queues that were made, {place, or '!' and the fence in force}}.

local answers = {}
for at = 2, #ARGV, 5 do
  local in_force = guard_fails(tonumber(ARGV[at + 2]), ARGV[at + 3])
  if in_force then
    answers[#answers + 1] = '!' .. in_force
  else
    answers[#answers + 1] = store(ARGV[1], 1, ARGV[at], ARGV[at + 1], ARGV[at + 4])
  end
end
flush()
return { made, answers }
