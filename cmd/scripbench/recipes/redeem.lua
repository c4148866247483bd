-- KEYS = states   ARGV = code, order
-- 1 = redeemed, for this order; 0 = redeemed for another; nil = not claimed.
local state = redis.call('HGET', KEYS[1], ARGV[1])
if not state then return false end
if state == '' then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) return 1 end
if state == ARGV[2] then return 1 end
return 0
