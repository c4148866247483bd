package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// pendingPeer is a peer that keeps reminders until they are due.
type pendingPeer struct {
	recipe
	most int
	hold func(ctx context.Context, b *bench, u subscriptions, r *report.PendingAtPeers) error
}

var pendingPeers = []pendingPeer{
	{recipe: recipe{name: "redis-zset", about: "sorted sets by due instant, member campaign:customer", server: onRedis}, most: 5_000_000, hold: holdRedis},
	{recipe: recipe{name: "asynq", about: "a scheduled task for each", server: onRedis}, most: 200_000, hold: holdAsynq},
	{recipe: recipe{name: "river", about: "a scheduled job for each; on disk", server: onPostgres}, most: 500_000, hold: holdRiver},
}

const (
	// pendingRoles are without the read tables, which the command tables measures.
	pendingRoles = "lanes,scheduler,api"
	// pendingDue is later than the end of any run.
	pendingDue = 30 * 24 * time.Hour
	// pendingMore subscriptions, or a tenth of all, are made between a start and the kill.
	pendingMore = 300_000
	// pendingQueues is how many sorted sets the reminders of Redis are spread over.
	pendingQueues = 10
)

func pendingCommand() *cobra.Command {
	var f flags
	var campaigns int
	cmd := &cobra.Command{
		Use: "pending", Short: "Measure the cost of reminders that are not due yet: memory, disk, restarts",
		Long: `Subscribe --n customers to reminders that are due in a month, and measure memory and disk for each, and how long a start
takes until all are known again: after a clean stop, and after kill -9 with more subscriptions since the start.

` + recipe{name: report.Subject, about: "scrip serve --roles " + pendingRoles + ": no read tables"}.String() + `
` + lines(pendingPeers, func(p pendingPeer) string { return fmt.Sprintf("%s (%s at most)", p, report.Num(p.most)) }) + `

Peers hold fewer, and bytes for each are compared; their restart is measured with those, and extrapolated in a column of
its own. scrip's 60,000,000 need some 25 GB of disk while it runs.`,
		Example: `  scripbench pending --n 1000000
  scripbench pending --systems scrip`,
	}
	f.addSystems(cmd.Flags())
	cmd.Flags().IntVar(&campaigns, "campaigns", 60, "campaigns that the reminders are spread over")
	return f.command(cmd, "reminders", 60_000_000, func(ctx context.Context, d report.Durability) (report.Result, error) {
		all := append([]pendingPeer{{recipe: recipes[0]}}, pendingPeers...)
		list, err := named(all, func(p pendingPeer) string { return p.name }, f.systems, systemsFlag)
		if err != nil {
			return nil, err
		}
		if campaigns < 1 || campaigns > f.n {
			return nil, cli.Usagef("--campaigns must be at least 1 and at most --n (%d)", f.n)
		}
		return f.pending(ctx, d, campaigns, list)
	})
}

// pending measures systems, one after the other; scrip is the first or not among them.
func (o options) pending(ctx context.Context, d report.Durability, campaigns int, list []pendingPeer) (*report.Pending, error) {
	o.roles = pendingRoles
	r := &report.Pending{Durability: d, N: o.n, Campaigns: campaigns, Load: process.Load()}
	if err := o.newBench(d).missing(report.Each(list, pendingPeer.base)); err != nil {
		return nil, err
	}
	for _, p := range list {
		at, u := report.PendingAtPeers{Name: p.name, Recipe: p.about, N: min(o.n, p.most)}, newSubscriptions("pending", campaigns)
		err := o.with(ctx, d, []recipe{p.recipe}, func(b *bench) error {
			at.Settings = p.server(b).settings()
			if p.name == report.Subject {
				r.Scrip = &report.ScripPending{Settings: at.Settings, Since: min(pendingMore, max(1, o.n/10))}
				return o.holdScrip(ctx, b, u, r.Scrip)
			}
			return p.hold(ctx, b, u, &at)
		})
		if err != nil {
			return nil, fmt.Errorf("pending, %s: %w", p.name, err)
		}
		if p.name == report.Subject {
			continue
		}
		if s := r.Scrip; s != nil && s.Filled > s.Empty && !at.Disk {
			at.Ratio = report.Bytes(at.Bytes, at.N) / report.Bytes(s.Filled-s.Empty, r.N)
		}
		o.printf("pending: %s: %.1f bytes each", p.name, report.Bytes(at.Bytes, at.N))
		r.Peers = append(r.Peers, at)
	}
	return r, nil
}

// holdScrip fills scrip, and stops and kills it.
func (o options) holdScrip(ctx context.Context, b *bench, u subscriptions, r *report.ScripPending) error {
	s := b.scrip
	return o.cycle(ctx, b, &r.Cycle, content{
		name: "pending",
		fill: func() (float64, error) {
			if err := u.open(ctx, s, time.Now().Add(pendingDue), false); err != nil {
				return 0, err
			}
			began := time.Now()
			err := o.subscribe(ctx, s, u, 0, o.n)
			if err == nil {
				err = o.known(ctx, s, o.n)
			}
			if err != nil {
				return 0, err
			}
			rate := float64(o.n) / time.Since(began).Seconds()
			// Reminders are pending for days before a restart: snapshots cover them by then.
			began = time.Now()
			err = s.covered(ctx)
			r.Covered = time.Since(began).Seconds()
			return rate, err
		},
		beside: func() error {
			p, err := s.profile(ctx)
			if err == nil {
				r.Heap = heapOf(p)
			}
			return err
		},
		stopped: func() (err error) {
			r.Events, r.Disk, err = s.disk()
			return err
		},
		known: func(kill bool) error {
			n := o.n
			if kill {
				n += r.Since
			}
			return o.known(ctx, s, n)
		},
		more: func() error {
			if err := o.subscribe(ctx, s, u, o.n, o.n+r.Since); err != nil {
				return err
			}
			return o.known(ctx, s, o.n+r.Since)
		},
	})
}

// covered waits until the snapshots of all lanes cover what they hold. Schedulers may have a quarter of theirs to replay.
func (s *scripServer) covered(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, knownWithin)
	defer cancel()
	return process.Poll(ctx, s.proc, time.Second, func() error {
		fresh, err := s.metric(ctx, "scrip_lane_events_since_snapshot")
		if err != nil {
			return err
		}
		writing, err := s.metric(ctx, "scrip_lane_snapshot_writing")
		if err == nil && fresh+writing > 0 {
			err = fmt.Errorf("%w: %.0f events are not in snapshots", process.ErrWaiting, fresh)
		}
		return err
	})
}

// disk is the size of the server's files: those of the event streams, and all others but those of the command streams.
func (s *scripServer) disk() (events, other int64, err error) {
	err = filepath.WalkDir(s.data(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch path := filepath.ToSlash(path); {
		case strings.Contains(path, "/"+topology.EvtStreamPrefix):
			events += info.Size()
		case !strings.Contains(path, "/"+topology.CmdStreamPrefix):
			other += info.Size()
		}
		return nil
	})
	return events, other, err
}

// holdRedis fills sorted sets, and starts Redis again from its log of commands and from a snapshot.
func holdRedis(ctx context.Context, b *bench, u subscriptions, r *report.PendingAtPeers) error {
	s := b.redis
	empty := process.Memory(s.pids()...)
	if err := s.fillReminders(ctx, u, dueJob{n: r.N, queues: pendingQueues}, time.Now().Add(pendingDue)); err != nil {
		return err
	}
	r.Bytes = process.Memory(s.pids()...) - empty
	count := func() error {
		n, err := s.reminders(ctx, pendingQueues)
		if err == nil && n != r.N {
			err = fmt.Errorf("%d of %d reminders are there", n, r.N)
		}
		return err
	}
	again := func() (float64, error) {
		_, _, ready, err := restart(ctx, s, fullStop, nil)
		return ready, errors.Join(err, count())
	}
	err := count()
	if err == nil {
		r.FromLog, err = again()
	}
	if err == nil {
		err = s.rewrite(ctx)
	}
	if err == nil {
		r.FromSnapshot, err = again()
	}
	return err
}

// rewrite rewrites the append-only file, so that it begins with a snapshot.
func (r *redisServer) rewrite(ctx context.Context) error {
	if err := r.rdb.BgRewriteAOF(ctx).Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	return process.Poll(ctx, r.proc, pollEvery, func() error {
		info, err := r.rdb.Info(ctx, "persistence").Result()
		switch {
		case err != nil:
			return err
		case !strings.Contains(info, "aof_rewrite_in_progress:0") || !strings.Contains(info, "aof_rewrite_scheduled:0"):
			return fmt.Errorf("%w: the append-only file is being rewritten", process.ErrWaiting)
		case !strings.Contains(info, "aof_last_bgrewrite_status:ok"):
			return errors.New("rewriting the append-only file failed")
		}
		return nil
	})
}

// holdAsynq schedules tasks.
func holdAsynq(ctx context.Context, b *bench, u subscriptions, r *report.PendingAtPeers) error {
	s := b.redis
	empty := process.Memory(s.pids()...)
	err := s.scheduleTasks(ctx, u.tasks(r.N, 1), time.Now().Add(pendingDue))
	r.Bytes = process.Memory(s.pids()...) - empty
	return err
}

// holdRiver schedules jobs.
func holdRiver(ctx context.Context, b *bench, u subscriptions, r *report.PendingAtPeers) error {
	pool, err := b.postgres.riverPool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := insertJobs(ctx, pool, u.tasks(r.N, 1), time.Now().Add(pendingDue)); err != nil {
		return err
	}
	r.Disk = true
	jobs := 0
	err = pool.QueryRow(ctx, `SELECT count(*), pg_total_relation_size('river_job') FROM river_job WHERE state = 'scheduled'`).Scan(&jobs, &r.Bytes)
	if err == nil && jobs != r.N {
		err = fmt.Errorf("%d of %d jobs are there", jobs, r.N)
	}
	return err
}
