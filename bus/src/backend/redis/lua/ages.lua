-- When messages were sent.

-- When a message was sent; nil if it is no message of ours, or its sender's clock stood before 1970.
local function sent_at(body)
  if not expiry_of(body) or string.byte(body, 42) > 127 then return nil end
  local time = 0
  for at = 42, 49 do time = time * 256 + string.byte(body, at) end
  return time
end
