-- A lock's record. KEYS: record.
-- Answers {owner, fence, lease, held for or -1, 'clean', 'cut' or '', reason, note}, or nothing.

local row = redis.call('HMGET', record, 'owner', 'fence', 'lease', 'renewed', 'ended', 'reason', 'note')
if not row[1] then return {} end
local left = tonumber(row[4]) + tonumber(row[3]) - now
local held_for = (row[5] == 'clean' or left <= 0) and -1 or left
return { row[1], row[2], row[3], held_for, row[5] or '', row[6] or '', row[7] or '' }
