-- KEYS = free codes, holders, states   ARGV = customer
-- Like claim.lua, and stores that the code is claimed, so that it can be redeemed.
local had = redis.call('HGET', KEYS[2], ARGV[1])
if had then return '=' .. had end
local code = redis.call('LPOP', KEYS[1])
if not code then return false end
redis.call('HSET', KEYS[2], ARGV[1], code)
redis.call('HSET', KEYS[3], code, '')
return code
