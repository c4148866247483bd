package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"
)

const (
	// asynqClients schedule tasks concurrently: its client cannot schedule many at once.
	asynqClients = 256
	// asynqServers share the queue: each takes out one task after the other, and waits for Redis each time. asynqWorkers of
	// each work concurrently; they do nothing, so that each waits for Redis only.
	asynqServers, asynqWorkers = 16, 16
	// asynqForward is how often each server searches for due tasks, by default 5 s; asynqPoll how often it polls for work
	// when there was none, by default 1 s.
	asynqForward, asynqPoll = 100 * time.Millisecond, 10 * time.Millisecond
	asynqTask               = "remind"
)

// remindArgs are the arguments of a task or a job.
type remindArgs struct {
	Campaign  string   `json:"campaign"`
	Customers []string `json:"customers"`
}

// Kind is River's name for such jobs.
func (remindArgs) Kind() string { return asynqTask }

// reach ticks off all customers.
func (a remindArgs) reach(l *ledger, who int) error {
	customers := make([]int, 0, len(a.Customers))
	for _, id := range a.Customers {
		n, err := numberOf([]byte(id))
		if err != nil {
			return err
		}
		customers = append(customers, n)
	}
	l.reach(who, customers...)
	return nil
}

// tasks cuts n reminders into tasks of one campaign each with up to per customers.
func (u subscriptions) tasks(n, per int) (list []remindArgs) {
	for c, name := range u.names {
		args := remindArgs{Campaign: name}
		for i := c; i < n; i += len(u.names) {
			args.Customers = append(args.Customers, customerID(i))
			if len(args.Customers) == per {
				list = append(list, args)
				args.Customers = nil
			}
		}
		if args.Customers != nil {
			list = append(list, args)
		}
	}
	return list
}

// asynqReminders schedules a task for each so many customers of a campaign.
type asynqReminders struct{ per int }

func (kind asynqReminders) run(ctx context.Context, o options, b *bench, j dueJob) (m DueRun, err error) {
	r, l := b.redis, newLedger(j.n)
	tasks := newSubscriptions("remind", j.campaigns).tasks(j.n, kind.per)
	at, err := aimed(time.Second+time.Duration(len(tasks))*30*time.Microsecond, func(at time.Time, again bool) error {
		if err := r.rdb.FlushAll(ctx).Err(); err != nil {
			return err
		}
		return r.scheduleTasks(ctx, tasks, at)
	})
	if err != nil {
		return m, err
	}
	o.printf("remind: asynq has %s tasks", num(len(tasks)))
	l.at = at
	var worker atomic.Int64
	handle := asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		var args remindArgs
		if err := json.Unmarshal(t.Payload(), &args); err != nil {
			return err
		}
		return args.reach(l, int(worker.Add(1)))
	})
	var servers []*asynq.Server
	for range asynqServers {
		srv := asynq.NewServer(asynq.RedisClientOpt{Addr: r.addr, PoolSize: 2 * asynqWorkers}, asynq.Config{
			Concurrency: asynqWorkers, DelayedTaskCheckInterval: asynqForward, TaskCheckInterval: asynqPoll, LogLevel: asynq.FatalLevel,
		})
		if err = srv.Start(handle); err != nil {
			break
		}
		servers = append(servers, srv)
	}
	if err == nil {
		m, err = l.measuredBy(ctx, r, l.wait)
	}
	var stopping sync.WaitGroup
	for _, srv := range servers {
		stopping.Go(srv.Shutdown) // waits for the workers
	}
	stopping.Wait()
	return m, err
}

// scheduleTasks schedules all tasks for an instant.
func (r *redisServer) scheduleTasks(ctx context.Context, tasks []remindArgs, at time.Time) error {
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: r.addr, PoolSize: asynqClients})
	defer client.Close()
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range min(asynqClients, len(tasks)) {
		g.Go(func() error {
			for i := int(next.Add(1)) - 1; i < len(tasks); i = int(next.Add(1)) - 1 {
				payload, err := json.Marshal(tasks[i])
				if err != nil {
					return err
				}
				if _, err := client.EnqueueContext(ctx, asynq.NewTask(asynqTask, payload), asynq.ProcessAt(at)); err != nil {
					return fmt.Errorf("scheduling a task: %w", err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}
