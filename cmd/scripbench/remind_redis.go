package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

const (
	// remindBatch is how many reminders are taken out of a sorted set at once.
	remindBatch = 2000
	// remindPoll is how often the published design polls.
	remindPoll = time.Second
	// remindPause is how long the other waits when nothing is due.
	remindPause = 5 * time.Millisecond

	// luaPop takes out what is due.
	// KEYS = a queue   ARGV = now in seconds, how many at most
	luaPop = `
local due = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[2])
if #due > 0 then redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #due - 1) end
return due`
)

// redisReminders keeps reminders in sorted sets by due instant, customers spread over them by their number. Each has one
// poller.
type redisReminders struct {
	// poll each second, as published; otherwise as fast as it can.
	poll bool
}

func remindQueue(q int) string { return "remind:" + strconv.Itoa(q) }

func (kind redisReminders) run(ctx context.Context, o options, b *bench, j dueJob) (m DueRun, err error) {
	r, u, l := b.redis, newSubscriptions("remind", j.campaigns), newLedger(j.n)
	meant := meantFor()
	if err := r.fillReminders(ctx, u, j, meant); err != nil {
		return m, err
	}
	o.printf("remind: Redis has %s reminders", num(j.n))
	rdb := r.client(j.queues)
	defer rdb.Close()
	c := clockFor(meant)
	l.at = c.at
	m, err = l.measuredBy(ctx, r, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		polling, stop := context.WithCancel(ctx)
		defer stop()
		for q := range j.queues {
			g.Go(func() error {
				err := kind.work(polling, rdb, q, j.queues, c, l)
				if polling.Err() != nil && ctx.Err() == nil {
					return nil // all were reached
				}
				return err
			})
		}
		g.Go(func() error {
			defer stop()
			return l.wait(ctx)
		})
		return g.Wait()
	})
	if err != nil {
		return m, err
	}
	left, err := r.reminders(ctx, j.queues)
	if err == nil && left != 0 {
		err = fmt.Errorf("%d reminders are left", left)
	}
	return m, err
}

// reminders counts those in the queues.
func (r *redisServer) reminders(ctx context.Context, queues int) (n int, err error) {
	for q := range queues {
		some, err := r.rdb.ZCard(ctx, remindQueue(q)).Result()
		if err != nil {
			return 0, err
		}
		n += int(some)
	}
	return n, nil
}

// fillReminders puts all into their queues.
func (r *redisServer) fillReminders(ctx context.Context, u subscriptions, j dueJob, due time.Time) error {
	score := float64(due.Unix())
	return r.fill(ctx, j.n, redisFill*j.queues, func(pipe redis.Pipeliner, from, to int) {
		members := make([][]redis.Z, j.queues)
		for i := from; i < to; i++ {
			members[i%j.queues] = append(members[i%j.queues], redis.Z{Score: score, Member: u.campaign(i) + ":" + customerID(i)})
		}
		for q, some := range members {
			if len(some) > 0 {
				pipe.ZAdd(ctx, remindQueue(q), some...)
			}
		}
	})
}

// work is the poller of one queue, and its worker.
func (kind redisReminders) work(ctx context.Context, rdb *redis.Client, q, queues int, c clock, l *ledger) error {
	pop, queue, customers := redis.NewScript(luaPop), remindQueue(q), make([]int, 0, remindBatch)
	pause := remindPause
	if kind.poll {
		pause = remindPoll
		// Pollers do not all poll at the same moment.
		if err := until(ctx, time.Now().Add(time.Duration(q)*remindPoll/time.Duration(queues))); err != nil {
			return err
		}
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		var members []string
		var err error
		if kind.poll {
			members, err = takeOut(ctx, rdb, queue, c)
		} else {
			members, err = pop.Run(ctx, rdb, []string{queue}, c.seconds(), remindBatch).StringSlice()
		}
		if err != nil {
			return err
		}
		customers = customers[:0]
		for _, member := range members {
			n, err := numberOf([]byte(member))
			if err != nil {
				return err
			}
			customers = append(customers, n)
		}
		l.reach(q, customers...)
		if len(members) == remindBatch && !kind.poll {
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// takeOut reads what is due and removes it, in two commands, as published.
func takeOut(ctx context.Context, rdb *redis.Client, queue string, c clock) ([]string, error) {
	members, err := rdb.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: queue, Start: "-inf", Stop: strconv.FormatFloat(c.seconds(), 'f', 6, 64), ByScore: true, Count: remindBatch,
	}).Result()
	if err != nil || len(members) == 0 {
		return nil, err
	}
	gone := make([]any, len(members))
	for i, member := range members {
		gone[i] = member
	}
	return members, rdb.ZRem(ctx, queue, gone...).Err()
}
