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
	// riverWorkers work at once, riverFetch is how often they are given new jobs at most, riverLook how often somebody looks
	// for some without having been told; by default 100 ms and 1 s.
	riverWorkers = 2000
	riverFetch   = 2 * time.Millisecond
	riverLook    = 20 * time.Millisecond
	// riverInsert is how many jobs are inserted by one COPY.
	riverInsert = 10_000
	riverConns  = 8
	// riverAhead: what is scheduled is made available by a service that looks when it starts and every five seconds, and
	// takes what is due within the next five. The instant lies behind its first round.
	riverAhead = 2 * time.Second
)

// riverReminders schedules a job for each so many customers of a campaign.
type riverReminders struct{ per int }

func (kind riverReminders) run(ctx context.Context, o options, st *stand, j dueJob) (m DueRun, err error) {
	s, l := st.postgres, newLedger(j.n)
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
	fmt.Fprintf(o.progress, "remind: River has %s jobs\n", thousands(float64(len(jobs))))
	l.at = at
	workers := river.NewWorkers()
	var worker atomic.Int64
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[remindArgs]) error {
		return job.Args.reach(l, int(worker.Add(1)))
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}}, Workers: workers,
		FetchCooldown: riverFetch, FetchPollInterval: riverLook, JobTimeout: -1, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return m, err
	}
	if err := client.Start(ctx); err != nil {
		return m, fmt.Errorf("starting River: %w", err)
	}
	usage, err := measured(ctx, s, at, l.waitAnd)
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
	m, err = l.result()
	return usage.with(m), err
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

// insertJobs hands in all jobs for an instant.
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
