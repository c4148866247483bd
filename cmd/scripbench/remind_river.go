package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
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
	// riverAhead: a service makes scheduled jobs available when it starts and every five seconds, those that are due within
	// the next five. The instant is after its first round.
	riverAhead = 2 * time.Second
)

// riverReminders schedules a job for each so many customers of a campaign.
type riverReminders struct{ per int }

func (kind riverReminders) run(ctx context.Context, o options, b *bench, j dueJob) (m DueRun, err error) {
	s, l := b.postgres, newLedger(j.n)
	pool, err := s.riverPool(ctx)
	if err != nil {
		return m, err
	}
	defer pool.Close()
	jobs := newSubscriptions("remind", j.campaigns).tasks(j.n, kind.per)
	at, err := aimed(riverAhead+time.Duration(len(jobs))*30*time.Microsecond, func(at time.Time, again bool) error {
		if again {
			_, err := pool.Exec(ctx, `UPDATE river_job SET scheduled_at = $1 WHERE state = 'scheduled'`, at)
			return err
		}
		return insertJobs(ctx, pool, jobs, at)
	})
	if err != nil {
		return m, err
	}
	o.printf("remind: River has %s jobs", num(len(jobs)))
	l.at = at
	workers := river.NewWorkers()
	var worker atomic.Int64
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[remindArgs]) error {
		return job.Args.reach(l, int(worker.Add(1)))
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}}, Workers: workers,
		FetchCooldown: riverFetch, FetchPollInterval: riverPoll, JobTimeout: -1, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return m, err
	}
	if err := client.Start(ctx); err != nil {
		return m, fmt.Errorf("starting River: %w", err)
	}
	m, err = l.measuredBy(ctx, s, l.wait)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := errors.Join(err, client.Stop(stopping)); err != nil {
		return m, err
	}
	var left int
	if err := pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE state <> 'completed'`).Scan(&left); err != nil {
		return m, err
	}
	if left != 0 {
		return m, fmt.Errorf("%d jobs are not completed", left)
	}
	return m, nil
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
		var params []river.InsertManyParams
		for _, args := range jobs[from:min(from+riverInsert, len(jobs))] {
			params = append(params, river.InsertManyParams{Args: args, InsertOpts: &river.InsertOpts{ScheduledAt: at}})
		}
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return fmt.Errorf("inserting jobs: %w", err)
		}
	}
	_, err = pool.Exec(ctx, `VACUUM ANALYZE river_job`)
	return err
}
