package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
)

// redisServer is a redis-server with an append-only file. The file is not rewritten during a run, and no snapshots are
// written: both would only slow it.
type redisServer struct {
	node
	binary, addr string
	rdb          *redis.Client
}

// fsync is the value of appendfsync.
func (r *redisServer) fsync() string { return r.durability.Choose("always", "everysec") }

func (r *redisServer) start(ctx context.Context) (err error) {
	if r.binary, err = exec.LookPath("redis-server"); err != nil {
		return errors.New("redis-server is missing: apt-get install -y redis-server (docker/setup.sh bench does)")
	}
	if r.addr, err = freeAddress(); err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(r.addr)
	r.rdb = r.client(8)
	err = r.run(ctx, readyWithin, func(*process.Process) error {
		if err := r.rdb.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("%w ready: %w", process.ErrWaiting, err)
		}
		return nil
	}, r.binary,
		"--bind", "127.0.0.1", "--port", port, "--dir", r.dir, "--save", "", "--appendonly", "yes", "--appendfsync", r.fsync(),
		"--auto-aof-rewrite-percentage", "0", "--maxclients", "10000")
	if err != nil {
		return err
	}
	for _, script := range []*redis.Script{redisClaim, redisClaimToRedeem, redisRedeem} {
		if err := script.Load(ctx, r.rdb).Err(); err != nil {
			return err
		}
	}
	return nil
}

// client has up to so many connections. It does not retry: a script that ran twice would give a wrong answer.
func (r *redisServer) client(connections int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: r.addr, PoolSize: connections, ReadTimeout: patience, WriteTimeout: patience, Protocol: 2, DisableIdentity: true, MaxRetries: -1,
	})
}

// freeAddress is free now, for servers that cannot choose a port by themselves.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (r *redisServer) settings() string {
	version, _ := exec.Command(r.binary, "--version").Output() // Redis server v=7.0.15 sha=…
	_, rest, _ := strings.Cut(string(version), "v=")
	number, _, _ := strings.Cut(rest, " ")
	return fmt.Sprintf("redis-server %s, appendonly yes, appendfsync %s, no rewrites, no snapshots", number, r.fsync())
}

func (r *redisServer) stop(within time.Duration) {
	if r.rdb != nil {
		_ = r.rdb.Close()
	}
	r.node.stop(within)
}

const (
	// redisFill is how many items a command has when Redis is filled, redisFillLists after how many commands a pipeline
	// is sent.
	redisFill, redisFillLists = 1000, 32
)

// fill pipelines the commands that add makes for chunks [from, to) of n items.
func (r *redisServer) fill(ctx context.Context, n, chunk int, add func(pipe redis.Pipeliner, from, to int)) error {
	pipe := r.rdb.Pipeline()
	for from := 0; from < n; from += chunk {
		to := min(from+chunk, n)
		add(pipe, from, to)
		if pipe.Len() >= redisFillLists || to == n {
			if _, err := pipe.Exec(ctx); err != nil {
				return fmt.Errorf("filling Redis: %w", err)
			}
		}
	}
	return nil
}

// The well-known recipe: a list of free codes and a hash customer → code per campaign. Redis runs one script at a time,
// so each is atomic.
var redisClaim, redisClaimToRedeem, redisRedeem = script("claim.lua"), script("claim_to_redeem.lua"), script("redeem.lua")

// recipeFiles are the scripts and the statements of the recipes.
//
//go:embed recipes
var recipeFiles embed.FS

// recipeText is the content of one of them.
func recipeText(name string) string {
	text, err := recipeFiles.ReadFile("recipes/" + name)
	if err != nil {
		panic(err) // it is not in the program
	}
	return string(text)
}

func script(name string) *redis.Script { return redis.NewScript(recipeText(name)) }

// redisRecipe pipelines so many commands on each connection.
type redisRecipe struct{ pipeline int }

func (rc redisRecipe) open(ctx context.Context, b *bench, p *plan) (job, error) {
	r, callers := b.redis, callers
	if p.style == alone {
		callers = 1
	}
	if err := r.fillCodes(ctx, p); err != nil {
		return job{}, err
	}
	rdb := r.client(callers)
	keys := make([]redisKeys, len(p.names))
	for i, name := range p.names {
		keys[i] = redisKeys{"codes:" + name, "holders:" + name, "states:" + name}
	}
	return job{
		callers: callers, batch: rc.pipeline, inFlight: callers * rc.pipeline,
		caller: func(context.Context, int) (caller, error) {
			c := &redisCaller{conn: rdb.Conn(), p: p, keys: keys}
			return caller{send: c.send, close: func() { _ = c.conn.Close() }}, nil
		},
		check: func(ctx context.Context, t tally) error { return r.given(ctx, p, t) },
		close: func() { _ = rdb.Close() },
	}, nil
}

// fillCodes empties Redis and pushes the codes of a plan.
func (r *redisServer) fillCodes(ctx context.Context, p *plan) error {
	next := p.coupon()
	return r.fill(ctx, p.coupons(), redisFill, func(pipe redis.Pipeliner, from, to int) {
		if from == 0 {
			pipe.FlushAll(ctx)
		}
		byCampaign := map[int][]any{}
		for range to - from {
			c, n, _ := next()
			byCampaign[c] = append(byCampaign[c], code(c, n))
		}
		for c, codes := range byCampaign {
			pipe.RPush(ctx, "codes:"+p.names[c], codes...)
		}
	})
}

// redisKeys are those of a campaign.
type redisKeys struct{ codes, holders, states string }

// redisCaller has a connection of its own.
type redisCaller struct {
	conn *redis.Conn
	p    *plan
	keys []redisKeys
	cmds []*redis.Cmd
}

func (c *redisCaller) add(ctx context.Context, script *redis.Script, keys int, args ...any) {
	c.cmds = append(c.cmds, redis.NewCmd(ctx, append([]any{"evalsha", script.Hash(), keys}, args...)...))
}

func (c *redisCaller) send(ctx context.Context, from, to int, answers []answer) error {
	c.cmds = c.cmds[:0]
	for i := from; i < to; i++ {
		k := &c.keys[c.p.index(i)]
		if c.p.redeem {
			c.add(ctx, redisClaimToRedeem, 3, k.codes, k.holders, k.states, c.p.customer(i))
		} else {
			c.add(ctx, redisClaim, 2, k.codes, k.holders, c.p.customer(i))
		}
	}
	c.pipeline(ctx)
	for n, cmd := range c.cmds {
		text, err := cmd.Text()
		switch {
		case errors.Is(err, redis.Nil):
			answers[from+n] = answer{verdict: refused}
		case err != nil:
			answers[from+n] = failure(err)
		case text[0] == '=':
			answers[from+n] = failure(errRepeat)
		default:
			answers[from+n] = answer{verdict: won, code: text}
		}
	}
	if c.p.redeem {
		c.redeem(ctx, from, to, answers)
	}
	return nil
}

func (c *redisCaller) redeem(ctx context.Context, from, to int, answers []answer) {
	c.cmds = c.cmds[:0]
	var of []int
	for i := from; i < to; i++ {
		if answers[i].verdict == won {
			of = append(of, i)
			c.add(ctx, redisRedeem, 1, c.keys[c.p.index(i)].states, answers[i].code, c.p.order(i))
		}
	}
	c.pipeline(ctx)
	for n, cmd := range c.cmds {
		if v, err := cmd.Int(); err != nil || v != 1 {
			answers[of[n]] = failure(fmt.Errorf("redeeming: %d, %w", v, err))
		}
	}
}

// pipeline sends all commands at once and reads their replies. Each command keeps its own error.
func (c *redisCaller) pipeline(ctx context.Context) {
	if len(c.cmds) == 1 {
		_ = c.conn.Process(ctx, c.cmds[0])
		return
	}
	pipe := c.conn.Pipeline()
	for _, cmd := range c.cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, _ = pipe.Exec(ctx)
}

// given compares the answers with the holders and the free codes in Redis.
func (r *redisServer) given(ctx context.Context, p *plan, t tally) error {
	pipe := r.rdb.Pipeline()
	for _, name := range p.names {
		pipe.HLen(ctx, "holders:"+name)
		pipe.LLen(ctx, "codes:"+name)
	}
	counts, err := pipe.Exec(ctx)
	if err != nil {
		return err
	}
	var sums [2]int // holders, free codes
	for i, cmd := range counts {
		sums[i%2] += int(cmd.(*redis.IntCmd).Val())
	}
	if sums[0] != t.won || sums[1] != p.coupons()-t.won {
		return fmt.Errorf("there are %d holders and %d free codes in Redis, answered were %d of %d", sums[0], sums[1], t.won, p.coupons())
	}
	return nil
}
