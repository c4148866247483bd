-- KEYS = free codes, holders, Idempotency-Keys   ARGV = customer, Idempotency-Key
-- Returns the code, "=" and the code for a repeat, nil when no code is left.
local had = redis.call('HGET', KEYS[3], ARGV[2]) or redis.call('HGET', KEYS[2], ARGV[1])
if had then return '=' .. had end
local code = redis.call('LPOP', KEYS[1])
if not code then return false end
redis.call('HSET', KEYS[2], ARGV[1], code)
redis.call('HSET', KEYS[3], ARGV[2], code)
return code
