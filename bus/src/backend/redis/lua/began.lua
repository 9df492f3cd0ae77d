-- When the store was begun, by the server's clock: when somebody opened it or published to it and found it empty. Where it is
-- another time than before, the store has been emptied meanwhile.

local function began(key)
  local at = redis.call('GET', key)
  if not at then
    at = name_of(now)
    redis.call('SET', key, at)
  end
  return at
end
