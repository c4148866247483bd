package main

import (
	"context"
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

const (
	// pendingRoles are without the read tables, which the command tables measures.
	pendingRoles = "lanes,scheduler,api"
	// pendingDue is later than the end of any run.
	pendingDue = 30 * 24 * time.Hour
	// pendingMore subscriptions, or a tenth of all, are made between a start and the kill.
	pendingMore = 300_000
)

func pendingCommand() *cobra.Command {
	var f flags
	var campaigns int
	cmd := &cobra.Command{
		Use: "pending", Short: "Measure the cost of reminders that are not due yet: memory, disk, restarts",
		Long: `Subscribe --n customers to reminders that are due in a month, and measure memory and disk for each, and how long a start
takes until all are known again: after a clean stop, and after kill -9 with more subscriptions since the start. Only scrip is started,
with --roles ` + pendingRoles + `. 60,000,000 need some 25 GB of disk while it runs.`,
		Example: "  scripbench pending --n 1000000",
	}
	cmd.Flags().IntVar(&campaigns, "campaigns", 60, "campaigns that the reminders are spread over")
	return f.command(cmd, "reminders", 60_000_000, func(ctx context.Context, d report.Durability) (report.Result, error) {
		if campaigns < 1 || campaigns > f.n {
			return nil, cli.Usagef("--campaigns must be at least 1 and at most --n (%d)", f.n)
		}
		return f.pending(ctx, d, campaigns)
	})
}

func (o options) pending(ctx context.Context, d report.Durability, campaigns int) (*report.Pending, error) {
	o.roles = pendingRoles
	r := &report.Pending{Durability: d, N: o.n, Campaigns: campaigns, Load: process.Load(), Scrip: &report.ScripPending{Since: min(pendingMore, max(1, o.n/10))}}
	return r, o.alone(ctx, d, func(b *bench) error {
		r.Scrip.Settings = b.scrip.settings()
		return o.holdReminders(ctx, b, newSubscriptions("pending", campaigns), r.Scrip)
	})
}

// holdReminders fills scrip, and stops and kills it.
func (o options) holdReminders(ctx context.Context, b *bench, u subscriptions, r *report.ScripPending) error {
	s := b.scrip
	return o.cycle(ctx, b, &r.Cycle, content{
		name: "pending",
		fill: func() (float64, error) {
			if err := u.open(ctx, s, time.Now().Add(pendingDue), false); err != nil {
				return 0, err
			}
			started := time.Now()
			err := o.subscribe(ctx, s, u, 0, o.n)
			if err == nil {
				err = o.known(ctx, s, o.n)
			}
			if err != nil {
				return 0, err
			}
			rate := float64(o.n) / time.Since(started).Seconds()
			// Reminders are pending for days before a restart: snapshots cover them by then.
			started = time.Now()
			err = s.covered(ctx)
			r.Covered = time.Since(started).Seconds()
			return rate, err
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
