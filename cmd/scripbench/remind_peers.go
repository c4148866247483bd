package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

const (
	// riverWorkers work concurrently, riverFetch is how often they get new jobs at most, riverPoll how often the client
	// polls for some without a notification; by default 100 ms and 1 s.
	riverWorkers = 2000
	riverFetch   = 2 * time.Millisecond
	riverPoll    = 20 * time.Millisecond
	// riverInsert is how many jobs are inserted by one COPY.
	riverInsert = 10_000
	riverConns  = 8
	// riverJob is how many customers a job has. riverAhead: a service makes scheduled jobs available when it starts and every five seconds, those that are due within
	// the next five. The instant is after its first round.
	riverJob   = wire.MaxDueCustomers
	riverAhead = 2 * time.Second
)

// remindArgs are the arguments of a job.
type remindArgs struct {
	Campaign  string   `json:"campaign"`
	Customers []string `json:"customers"`
}

// Kind is the name of such jobs.
func (remindArgs) Kind() string { return "remind" }

// remindJobs are those of n customers.
func remindJobs(n int) (list []remindArgs) {
	for from := 0; from < n; from += riverJob {
		args := remindArgs{Campaign: "remind-0"}
		for i := from; i < min(from+riverJob, n); i++ {
			args.Customers = append(args.Customers, customerID(i))
		}
		list = append(list, args)
	}
	return list
}

// remindRiver schedules the jobs.
func remindRiver(ctx context.Context, o options, b *bench) (d dueWork, err error) {
	s, l := b.postgres, newLedger(o.n)
	pool, err := s.riverPool(ctx)
	if err != nil {
		return d, err
	}
	d.close = pool.Close
	jobs := remindJobs(o.n)
	l.at, err = aimed(riverAhead+fillingOf(len(jobs)), func(at time.Time, again bool) error {
		if again {
			_, err := pool.Exec(ctx, `UPDATE river_job SET scheduled_at = $1 WHERE state = 'scheduled'`, at)
			return err
		}
		return insertJobs(ctx, pool, jobs, at)
	})
	if err != nil {
		return d, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[remindArgs]) error {
		l.reach(time.Now(), job.Args.Customers...)
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}}, Workers: workers,
		FetchCooldown: riverFetch, FetchPollInterval: riverPoll, JobTimeout: -1, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = client.Start(ctx)
	}
	d.at, d.work = l.at, l.wait
	d.judge = func(ctx context.Context, m *report.Run) error {
		stopping, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		left := 0
		err := errors.Join(l.judge(ctx, m), client.Stop(stopping))
		if err == nil {
			err = pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE state <> 'completed'`).Scan(&left)
		}
		if left != 0 {
			err = fmt.Errorf("%d jobs are not completed", left)
		}
		return err
	}
	return d, err
}

// riverPool makes River's tables and returns connections to them, with plans as PostgreSQL makes them by default.
func (s *postgresServer) riverPool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(s.url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = riverConns
	config.ConnConfig.RuntimeParams["enable_seqscan"] = "on"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("making River's tables: %w", err)
	}
	return pool, nil
}

// insertJobs inserts all jobs for an instant.
func insertJobs(ctx context.Context, pool *pgxpool.Pool, jobs []remindArgs, at time.Time) error {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	for from := 0; from < len(jobs); from += riverInsert {
		params := report.Each(jobs[from:min(from+riverInsert, len(jobs))], func(args remindArgs) river.InsertManyParams {
			return river.InsertManyParams{Args: args, InsertOpts: &river.InsertOpts{ScheduledAt: at}}
		})
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return fmt.Errorf("inserting jobs: %w", err)
		}
	}
	_, err = pool.Exec(ctx, `VACUUM ANALYZE river_job`)
	return err
}

const (
	// remindQueues are sorted sets, each with a poller of its own.
	remindQueues = 10
	// remindBatch is how many reminders are taken out of a sorted set at once.
	remindBatch = 2000
	// remindPoll is how often the published design polls.
	remindPoll = time.Second
	// remindPause is how long the other waits when nothing is due.
	remindPause = 5 * time.Millisecond
)

// redisReminders keeps reminders in sorted sets by due instant, customers spread over them by their number. Each has one
// poller.
type redisReminders struct {
	// poll each second, as published; otherwise as fast as it can.
	poll bool
}

func remindQueue(q int) string { return "remind:" + strconv.Itoa(q) }

func (kind redisReminders) fill(ctx context.Context, o options, b *bench) (d dueWork, err error) {
	r, u, l, meant := b.redis, newSubscriptions("remind", 1), newLedger(o.n), meantFor()
	if err := r.fillReminders(ctx, u, o.n, meant); err != nil {
		return d, err
	}
	rdb, c := r.client(remindQueues), clockFor(meant)
	l.at = c.at
	d.at, d.close = c.at, func() { _ = rdb.Close() }
	d.work = func(ctx context.Context, m *report.Run) error {
		g, ctx := errgroup.WithContext(ctx)
		for q := range remindQueues {
			g.Go(func() error { return kind.work(ctx, rdb, q, c, l) })
		}
		g.Go(func() error {
			if err := l.wait(ctx, m); err != nil {
				return err
			}
			return errReached // ends the pollers
		})
		if err := g.Wait(); !errors.Is(err, errReached) {
			return err
		}
		return nil
	}
	d.judge = func(ctx context.Context, m *report.Run) error {
		err := l.judge(ctx, m)
		for q := range remindQueues {
			left, failed := r.rdb.ZCard(ctx, remindQueue(q)).Result()
			if left != 0 {
				failed = fmt.Errorf("%d reminders are left", left)
			}
			err = errors.Join(err, failed)
		}
		return err
	}
	return d, nil
}

var errReached = errors.New("all were reached")

// fillReminders puts all into their queues.
func (r *redisServer) fillReminders(ctx context.Context, u subscriptions, n int, due time.Time) error {
	score := float64(due.Unix())
	return r.fill(ctx, n, redisFill*remindQueues, func(pipe redis.Pipeliner, from, to int) {
		members := map[int][]redis.Z{}
		for i := from; i < to; i++ {
			members[i%remindQueues] = append(members[i%remindQueues], redis.Z{Score: score, Member: u.campaign(i) + ":" + customerID(i)})
		}
		for q, some := range members {
			pipe.ZAdd(ctx, remindQueue(q), some...)
		}
	})
}

// work is the poller of one queue, and its worker.
func (kind redisReminders) work(ctx context.Context, rdb *redis.Client, q int, c clock, l *ledger) error {
	pop, queue, pause := script("pop.lua"), remindQueue(q), remindPause
	if kind.poll {
		pause = remindPoll
		// Pollers do not all poll at the same moment.
		if err := until(ctx, time.Now().Add(time.Duration(q)*remindPoll/remindQueues)); err != nil {
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
		l.reach(time.Now(), members...)
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
	return members, rdb.ZRem(ctx, queue, report.Each(members, func(m string) any { return m })...).Err()
}
