-- Ends a term. KEYS: record. ARGV: owner, fence or '' for any, 'clean' or 'cut', reason. Answers 1, or 0 if it was over.

local row = redis.call('HMGET', record, 'owner', 'fence', 'ended')
if row[1] ~= ARGV[1] or (ARGV[2] ~= '' and row[2] ~= ARGV[2]) or row[3] then return 0 end
go_on_when_full()
redis.call('HSET', record, 'ended', ARGV[3])
if ARGV[3] == 'cut' then
  redis.call('HSET', record, 'reason', ARGV[4])
else
  -- A hint, without which the lock is free all the same.
  redis.pcall('PUBLISH', record .. ':freed', '')
end
return 1
