package main

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// fullStop and pendingStart bound how long a full server takes to stop and to start.
	fullStop, pendingStart = 5 * time.Minute, 30 * time.Minute
	// growthRoom is how many coupons one campaign has: more than are ever claimed.
	growthRoom = 1_000_000_000
	// pendingRoles are without the read tables, which the command tables measures.
	pendingRoles = "lanes,scheduler,api"
	// pendingCampaigns share the reminders, which are due later than the end of any run.
	pendingCampaigns, pendingDue = 60, 30 * 24 * time.Hour
	// mostSince are added between a start and the kill, or a tenth of all.
	mostSince = 300_000
)

// growing are claims of one campaign.
var growing = workload{name: "growing", unit: "claims", style: bulk, campaigns: 1}

func restartCommand() *cobra.Command {
	return measurement(&cobra.Command{
		Use: "restart", Short: "Measure memory and restarts with many coupons",
		Long: `Fill scrip with --n claimed coupons and measure its memory and disk, and how long a start takes: after a clean stop, and after
kill -9 with claims since the last snapshot. Claims are repeated after each start and must get the same codes. Only scrip is started.`,
	}, 1_000_000, nil, func(ctx context.Context, o options, done func(report.Result) error) error {
		h := &report.Held{Unit: "coupon", Campaigns: 1, Head: o.head("restart", o.n)}
		if err := o.hold(ctx, h, heldCoupons); err != nil {
			return err
		}
		h.KnownAfterStop, h.KnownAfterKill = 0, 0 // a lane is ready when it has all; codes are only checked
		return done(h)
	})
}

func pendingCommand() *cobra.Command {
	return measurement(&cobra.Command{
		Use: "pending", Short: "Measure the cost of reminders that are not due yet: memory, disk, restarts",
		Long: `Subscribe --n customers to reminders that are due in a month, and measure memory and disk for each, and how long a start
takes until all are known again: after a clean stop, and after kill -9 with more subscriptions since the start. Only scrip is started,
with --roles ` + pendingRoles + `. 60,000,000 need some 25 GB of disk while it runs.`,
		Example: "  scripbench pending --n 1000000",
	}, 60_000_000, nil, func(ctx context.Context, o options, done func(report.Result) error) error {
		o.roles = pendingRoles
		h := &report.Held{Unit: "reminder", Campaigns: min(pendingCampaigns, o.n), Head: o.head("pending", o.n)}
		if err := o.hold(ctx, h, heldReminders); err != nil {
			return err
		}
		return done(h)
	})
}

// content is what scrip holds: number 0 and so on of a unit.
type content struct {
	// add adds numbers [from, to) and returns how many a second were added.
	add func(from, to int) (rate float64, err error)
	// known returns, after a start, when the first n are there.
	known func(n int) error
}

// hold fills scrip, stops it and kills it.
//
//	start empty ── fill ── SIGTERM, start ── known? ── more ── SIGKILL, start ── known?
//	  memory       memory    disk, how long      memory            how long
func (o options) hold(ctx context.Context, h *report.Held, of func(context.Context, options, *bench, *report.Held) content) error {
	h.Since = min(mostSince, max(1, h.N/10))
	return o.with(ctx, recipes[:1], func(b *bench) (err error) {
		s, k := b.scrip, of(ctx, o, b, h)
		h.Settings = []string{s.settings()}
		if h.Empty, err = s.resident(ctx); err != nil {
			return err
		}
		if h.FillRate, err = k.add(0, h.N); err != nil {
			return fmt.Errorf("filling: %w", err)
		}
		if h.Filled, err = s.resident(ctx); err != nil {
			return err
		}
		o.printf("%s: filled, %s a second", h.Name, report.Thousands(h.FillRate))
		started := time.Now()
		s.stop(fullStop)
		h.Stop = time.Since(started).Seconds()
		if h.Events, h.Disk, err = s.disk(); err != nil {
			return err
		}
		if h.NATSAfterStop, h.ReadyAfterStop, h.KnownAfterStop, err = s.again(ctx, k, h.N); err != nil {
			return fmt.Errorf("after a clean stop: %w", err)
		}
		o.printf("%s: stopped in %.1f s, ready after it in %.1f s (NATS %.1f s), all known in %.1f s", h.Name, h.Stop, h.ReadyAfterStop, h.NATSAfterStop, h.KnownAfterStop)
		if h.Again, err = s.resident(ctx); err != nil {
			return err
		}
		if _, err := k.add(h.N, h.N+h.Since); err != nil {
			return err
		}
		s.stop(0)
		if h.NATSAfterKill, h.ReadyAfterKill, h.KnownAfterKill, err = s.again(ctx, k, h.N+h.Since); err != nil {
			return fmt.Errorf("after kill -9: %w", err)
		}
		return nil
	})
}

// again starts a server that was stopped, on the same directory. It returns how many seconds it took until it was ready,
// and until all n were known; and how long of it its NATS took to read its store.
func (s *scripServer) again(ctx context.Context, k content, n int) (store, ready, known float64, err error) {
	started := time.Now()
	if err := s.start(ctx); err != nil {
		return 0, 0, 0, err
	}
	ready = time.Since(started).Seconds()
	err = k.known(n)
	known = time.Since(started).Seconds()
	if err == nil {
		store, err = s.metric(ctx, "scrip_nats_recovery_seconds")
	}
	return store, ready, known, err
}

// heldCoupons are claimed coupons of one campaign. What is checked after a start are their codes.
func heldCoupons(ctx context.Context, o options, b *bench, _ *report.Held) content {
	part := func(from, to int) *plan {
		p := emptyPlan(growing, "held", to-from, growthRoom)
		p.first, p.created = from, from > 0
		return p
	}
	return content{
		add:   func(from, to int) (float64, error) { return o.claim(ctx, b, part(from, to)) },
		known: func(n int) error { return b.scrip.sameCodes(ctx, part(0, n)) },
	}
}

// heldReminders are pending reminders.
func heldReminders(ctx context.Context, _ options, b *bench, h *report.Held) content {
	s, u := b.scrip, newSubscriptions("pending", h.Campaigns)
	return content{
		known: func(n int) error { return s.known(ctx, n) },
		add: func(from, to int) (rate float64, err error) {
			if from == 0 {
				err = u.open(ctx, s, time.Now().Add(pendingDue), false)
			}
			started := time.Now()
			if err == nil {
				err = s.subscribe(ctx, u, from, to)
			}
			if err == nil {
				err = s.known(ctx, to)
			}
			rate = float64(to-from) / time.Since(started).Seconds()
			if err == nil && from == 0 {
				// Reminders are pending for days before a restart: snapshots cover them by then.
				started = time.Now()
				err = s.covered(ctx)
				h.Covered = time.Since(started).Seconds()
			}
			return rate, err
		},
	}
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
