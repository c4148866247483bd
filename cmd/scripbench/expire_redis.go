package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// luaExpire takes coupons that are due out of the sorted set and marks them, 2,000 at once.
	// KEYS = due coupons   ARGV = now in seconds, how many at most
	luaExpire = `
local due = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[2])
if #due == 0 then return 0 end
local marks = {}
for i, coupon in ipairs(due) do
  marks[2 * i - 1] = 'coupon:' .. coupon
  marks[2 * i] = 'expired'
end
redis.call('MSET', unpack(marks))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #due - 1)
return #due`

	dueCoupons = "due"
)

// expireRedis keeps one key for each coupon's status and a sorted set of when they are due. A loop takes out what is due
// and marks it, in one script, so that a reader never sees one without the other.
func expireRedis(ctx context.Context, o options, b *bench, j dueJob) (m DueRun, err error) {
	r := b.redis
	script := redis.NewScript(luaExpire)
	meant := meantFor()
	if err := r.fillExpirable(ctx, j.n, meant); err != nil {
		return m, err
	}
	o.printf("expire: Redis has %s coupons", num(j.n))
	c := clockFor(meant)
	m, err = measured(ctx, r, c.at, func(ctx context.Context) (m DueRun, err error) {
		if err := until(ctx, c.at); err != nil {
			return m, err
		}
		for m.Done < j.n {
			marked, err := script.Run(ctx, r.rdb, []string{dueCoupons}, c.seconds(), expireBatch).Int()
			if err != nil {
				return m, err
			}
			if marked == 0 {
				return m, fmt.Errorf("nothing more is due, %d of %d coupons were marked", m.Done, j.n)
			}
			m.Done += marked
			m.All = time.Since(c.at).Seconds()
			if m.First == 0 {
				m.First = m.All
			}
		}
		return m, nil
	})
	if err != nil {
		return m, err
	}
	return m, r.allExpired(ctx, j.n)
}

// fillExpirable empties Redis and makes n claimed coupons that expire at an instant.
func (r *redisServer) fillExpirable(ctx context.Context, n int, at time.Time) error {
	if err := r.rdb.FlushAll(ctx).Err(); err != nil {
		return err
	}
	score := float64(at.Unix())
	return r.fill(ctx, n, redisFill, func(pipe redis.Pipeliner, from, to int) {
		marks, members := make([]any, 0, 2*redisFill), make([]redis.Z, 0, redisFill)
		for i := from; i < to; i++ {
			text := code(0, i)
			marks = append(marks, "coupon:"+text, "claimed")
			members = append(members, redis.Z{Score: score, Member: text})
		}
		pipe.MSet(ctx, marks...)
		pipe.ZAdd(ctx, dueCoupons, members...)
	})
}

// allExpired checks every coupon.
func (r *redisServer) allExpired(ctx context.Context, n int) error {
	left, err := r.rdb.ZCard(ctx, dueCoupons).Result()
	if err != nil {
		return err
	}
	expired := 0
	for from := 0; from < n; from += redisFill {
		var keys []string
		for i := from; i < min(from+redisFill, n); i++ {
			keys = append(keys, "coupon:"+code(0, i))
		}
		marks, err := r.rdb.MGet(ctx, keys...).Result()
		if err != nil {
			return err
		}
		for _, mark := range marks {
			if mark == "expired" {
				expired++
			}
		}
	}
	if left != 0 || expired != n {
		return fmt.Errorf("%d of %d coupons are expired and %d are still due", expired, n, left)
	}
	return nil
}
