-- Stores messages for one target. KEYS: queue or topic, endpoints of guards.
-- ARGV: 'queue' or 'topic', when the sender believes that the store was begun or '', for how long after another beginning
-- events are refused, then for each message: when, time, key of the guard or 0, fence, body.
-- Answers {'sent', when the store was begun or '', {place, or '!' and the fence in force}} or {'emptied', when it was begun}.

local kind, believed, refused_for = ARGV[1], ARGV[2], tonumber(ARGV[3])
local since = kind == 'topic' and began(string.match(KEYS[1], '^(.-):{') .. ':began') or ''
if since ~= '' and believed ~= '' and since ~= believed and now - tonumber(since) < refused_for then
  return { 'emptied', since }
end
local answers = {}
for at = 4, #ARGV, 5 do
  local in_force = guard_fails(tonumber(ARGV[at + 2]), ARGV[at + 3])
  if in_force then
    answers[#answers + 1] = '!' .. in_force
  else
    answers[#answers + 1] = store(kind, 1, ARGV[at], ARGV[at + 1], ARGV[at + 4])
  end
end
flush()
return { 'sent', since, answers }
