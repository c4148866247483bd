-- Takes coupons that are due out of the sorted set and marks them.
-- KEYS = due coupons   ARGV = now in seconds, how many at most
local due = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[2])
if #due == 0 then return 0 end
local marks = {}
for i, coupon in ipairs(due) do
  marks[2 * i - 1] = 'coupon:' .. coupon
  marks[2 * i] = 'expired'
end
redis.call('MSET', unpack(marks))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #due - 1)
return #due
