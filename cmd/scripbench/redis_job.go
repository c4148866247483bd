package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// The well-known recipe: a list of free codes and a hash customer → code per campaign. Redis runs one script at a time,
// so each is atomic.
const (
	// KEYS = free codes, holders   ARGV = customer
	// Returns the code, "=" and the code for a repeat, nil when no code is left.
	luaClaim     = luaClaimHead + "\nreturn code"
	luaClaimHead = `
local had = redis.call('HGET', KEYS[2], ARGV[1])
if had then return '=' .. had end
local code = redis.call('LPOP', KEYS[1])
if not code then return false end
redis.call('HSET', KEYS[2], ARGV[1], code)`

	// KEYS = free codes, holders, states   ARGV = customer
	// As above, and stores that the code is claimed, so that it can be redeemed.
	luaClaimToRedeem = luaClaimHead + `
redis.call('HSET', KEYS[3], code, '')
return code`

	// KEYS = states   ARGV = code, order
	// 1 = redeemed, for this order; 0 = redeemed for another; nil = not claimed.
	luaRedeem = `
local state = redis.call('HGET', KEYS[1], ARGV[1])
if not state then return false end
if state == '' then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) return 1 end
if state == ARGV[2] then return 1 end
return 0`
)

var redisClaim, redisClaimToRedeem, redisRedeem = redis.NewScript(luaClaim), redis.NewScript(luaClaimToRedeem), redis.NewScript(luaRedeem)

// redisRecipe pipelines so many commands on each connection.
type redisRecipe struct{ pipeline int }

func (rc redisRecipe) open(ctx context.Context, b *bench, p *plan, callers int) (job, error) {
	r := b.redis
	if err := r.fillCodes(ctx, p); err != nil {
		return job{}, err
	}
	if p.style == alone {
		callers = 1
	}
	rdb := r.client(callers)
	j := job{callers: callers, batch: rc.pipeline, inFlight: callers * rc.pipeline}
	keys := newRedisKeys(p)
	j.caller = func(context.Context, int) (caller, error) {
		return &redisCaller{conn: rdb.Conn(), p: p, keys: keys}, nil
	}
	j.check = func(ctx context.Context, t tally) error { return r.given(ctx, p, t) }
	j.close = func() { _ = rdb.Close() }
	return j, nil
}

// fillCodes empties Redis and pushes the codes of a plan.
func (r *redisServer) fillCodes(ctx context.Context, p *plan) error {
	if err := r.rdb.FlushAll(ctx).Err(); err != nil {
		return err
	}
	c, n := 0, -1
	return r.fill(ctx, p.coupons(), redisFill, func(pipe redis.Pipeliner, from, to int) {
		byCampaign := map[int][]any{}
		for range to - from {
			if n++; n == p.codes[c] {
				c, n = c+1, 0
			}
			byCampaign[c] = append(byCampaign[c], code(c, n))
		}
		for c, codes := range byCampaign {
			pipe.RPush(ctx, "codes:"+p.names[c], codes...)
		}
	})
}

// redisKeys are those of each campaign.
type redisKeys struct{ codes, holders, states []string }

func newRedisKeys(p *plan) redisKeys {
	var k redisKeys
	for _, name := range p.names {
		k.codes = append(k.codes, "codes:"+name)
		k.holders = append(k.holders, "holders:"+name)
		k.states = append(k.states, "states:"+name)
	}
	return k
}

// redisCaller has a connection of its own.
type redisCaller struct {
	conn *redis.Conn
	p    *plan
	keys redisKeys
	cmds []*redis.Cmd
}

func (c *redisCaller) close() { _ = c.conn.Close() }

func (c *redisCaller) send(ctx context.Context, from, to int, answers []answer) error {
	c.cmds = c.cmds[:0]
	for i := from; i < to; i++ {
		k := c.p.index(i)
		if c.p.redeem {
			c.cmds = append(c.cmds, redis.NewCmd(ctx, "evalsha", redisClaimToRedeem.Hash(), 3, c.keys.codes[k], c.keys.holders[k], c.keys.states[k], c.p.customer(i)))
		} else {
			c.cmds = append(c.cmds, redis.NewCmd(ctx, "evalsha", redisClaim.Hash(), 2, c.keys.codes[k], c.keys.holders[k], c.p.customer(i)))
		}
	}
	if err := c.pipeline(ctx); err != nil {
		return err
	}
	for n, cmd := range c.cmds {
		text, err := cmd.Text()
		switch {
		case errors.Is(err, redis.Nil):
			answers[from+n] = answer{verdict: refused}
		case err != nil:
			answers[from+n] = failure(err)
		case text[0] == '=':
			answers[from+n] = failure(errors.New("answered as a repeat, without a repeated claim"))
		default:
			answers[from+n] = answer{verdict: won, code: text}
		}
	}
	if !c.p.redeem {
		return nil
	}
	return c.redeem(ctx, from, to, answers)
}

func (c *redisCaller) redeem(ctx context.Context, from, to int, answers []answer) error {
	c.cmds = c.cmds[:0]
	var of []int
	for i := from; i < to; i++ {
		if answers[i].verdict == won {
			of = append(of, i)
			c.cmds = append(c.cmds, redis.NewCmd(ctx, "evalsha", redisRedeem.Hash(), 1, c.keys.states[c.p.index(i)], answers[i].code, c.p.order(i)))
		}
	}
	if err := c.pipeline(ctx); err != nil {
		return err
	}
	for n, cmd := range c.cmds {
		if v, err := cmd.Int(); err != nil || v != 1 {
			answers[of[n]] = failure(fmt.Errorf("redeeming: %d, %w", v, err))
		}
	}
	return nil
}

// pipeline sends all commands at once and reads their replies. Each command keeps its own error.
func (c *redisCaller) pipeline(ctx context.Context) error {
	switch len(c.cmds) {
	case 0:
		return nil
	case 1:
		_ = c.conn.Process(ctx, c.cmds[0])
		return nil
	}
	pipe := c.conn.Pipeline()
	for _, cmd := range c.cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, _ = pipe.Exec(ctx)
	return nil
}

// given compares the answers with the holders and the free codes in Redis.
func (r *redisServer) given(ctx context.Context, p *plan, t tally) error {
	pipe := r.rdb.Pipeline()
	var held, free []*redis.IntCmd
	for _, name := range p.names {
		held = append(held, pipe.HLen(ctx, "holders:"+name))
		free = append(free, pipe.LLen(ctx, "codes:"+name))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	holders, left := 0, 0
	for i := range held {
		holders += int(held[i].Val())
		left += int(free[i].Val())
	}
	if holders != t.won || left != p.coupons()-t.won {
		return fmt.Errorf("there are %d holders and %d free codes in Redis, answered were %d of %d", holders, left, t.won, p.coupons())
	}
	return nil
}
