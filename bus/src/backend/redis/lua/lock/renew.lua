-- Makes a term last for another lease. KEYS: record. ARGV: owner, fence, lease. Answers 1, or 0 if it is over.
-- Nobody else having taken the lock is enough: how long it is owned without a renewal, the holder's own clock says, and
-- the server's may have jumped.

local row = redis.call('HMGET', record, 'owner', 'fence', 'ended')
if row[1] ~= ARGV[1] or row[2] ~= ARGV[2] or row[3] then return 0 end
go_on_when_full()
redis.call('HSET', record, 'lease', ARGV[3], 'renewed', now)
redis.call('HINCRBY', record, 'beat', 1)
return 1
