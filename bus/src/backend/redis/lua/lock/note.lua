-- Keeps a note with a term's record. KEYS: record. ARGV: owner, fence, note.

local row = redis.call('HMGET', record, 'owner', 'fence', 'ended')
if row[1] ~= ARGV[1] or row[2] ~= ARGV[2] or row[3] then return 0 end
return redis.call('HSET', record, 'note', ARGV[3])
