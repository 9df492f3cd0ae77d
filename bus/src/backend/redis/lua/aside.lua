-- The dead letters of a dropped subscription. Each is a key of its own, too many of them to be deleted at once: they are set
-- aside when it is dropped, out of the reach of whoever makes it again, and deleted in parts.

local function set_aside(e)
  if redis.call('EXISTS', e.aside) == 0 then
    if redis.call('EXISTS', e.dead) == 1 then redis.call('RENAME', e.dead, e.aside) end
  else
    redis.call('ZUNIONSTORE', e.aside, 2, e.aside, e.dead)
  end
end

-- Deletes some of what was set aside; true if nothing is left. Until then a subscription that is gone stays listed, so that
-- the next sweep ends what somebody died over.
local function clear(e, most)
  local deaths = redis.call('ZRANGE', e.aside, 0, most - 1)
  for _, death in ipairs(deaths) do redis.call('DEL', e.dead .. ':' .. death) end
  in_pieces('ZREM', e.aside, deaths)
  if redis.call('EXISTS', e.aside) == 1 then return false end
  if not is_made(e) then redis.call('SREM', listing(e)) end
  return true
end
